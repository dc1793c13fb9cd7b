"""What came back, read once; and the one door to Scrapy's internals."""
