"""What Scrapy loads."""
