BOT_NAME = "irowiki"
SPIDER_MODULES = ["irowiki.spiders"]

# This line is all the politeness there is: the spider knows nothing of it.
ADDONS = {"scrapy_politeness.Addon": 500}

# Loopback is exempt by default, and the demo wiki lives on loopback.
POLITENESS_EXEMPT: list[str] = []

ROBOTSTXT_OBEY = True

# Say who you are, and where you can be reached when your crawl is a burden.
USER_AGENT = "irowiki-archiver/0.1 (+https://example.org/contact)"

FEEDS = {"pages.jsonl": {"format": "jsonlines", "overwrite": True}}
FEED_EXPORT_ENCODING = "utf-8"

LOG_LEVEL = "INFO"
