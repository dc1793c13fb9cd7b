"""``scrapy politeness``: what is known without a crawl."""
