BOT_NAME = "irowiki"
SPIDER_MODULES = ["irowiki.spiders"]

# Say who you are, and where you can be reached when your crawl is a burden.
USER_AGENT = "irowiki-archiver/0.1 (+https://example.org/put-your-address-here)"

# This is all the politeness there is: the spider knows nothing of it.
ADDONS = {"scrapy_politeness.Addon": 500}
ROBOTSTXT_OBEY = True
CONCURRENT_REQUESTS_PER_DOMAIN = 1
POLITENESS_START_RATE = 1
POLITENESS_MAX_RATE = 5
# A wiki that is read-only for an hour is waited for.
POLITENESS_MAX_RESCHEDULES = 100
# irowiki.progress knows more, namely how much there is in the wiki.
POLITENESS_PROGRESS = False
# Loopback is exempt by default, and the demo wiki lives on loopback.
POLITENESS_EXEMPT: list[str] = []

# Each wiki has a folder in here, with the job directory (JOBDIR) of its crawl.
ARCHIVES = "archives"

FEEDS = {
    "%(folder)s/siteinfo.json": {
        "format": "document",
        "item_classes": ["irowiki.items.SiteInfo"],
        "overwrite": True,
        "store_empty": False,
    },
    "%(folder)s/pages.jsonl": {
        "format": "jsonlines",
        "item_classes": ["irowiki.items.Page"],
    },
    "%(folder)s/revisions.jsonl": {
        "format": "jsonlines",
        "item_classes": ["irowiki.items.Revision"],
    },
    "%(folder)s/files.jsonl": {
        "format": "jsonlines",
        "item_classes": ["irowiki.items.File"],
    },
}
FEED_EXPORT_ENCODING = "utf-8"
# Nothing is lost in a crash: see feeds.py.
FEED_STORAGES = {"": "irowiki.feeds.WholeLines"}
FEED_EXPORTERS = {
    "jsonlines": "irowiki.feeds.FlushedJsonLines",
    "document": "irowiki.feeds.JsonDocument",
}

ITEM_PIPELINES = {"irowiki.pipelines.OriginalsPipeline": 300}
MEDIA_ALLOW_REDIRECTS = True

# The spider asks twice only on purpose, and a filter would need ever more memory.
DUPEFILTER_CLASS = "scrapy.dupefilters.BaseDupeFilter"
# A continued question may carry several long titles; one that is left out is lost.
URLLENGTH_LIMIT = 0
RETRY_TIMES = 5
COOKIES_ENABLED = False
TELNETCONSOLE_ENABLED = False

EXTENSIONS = {
    "irowiki.progress.Progress": 0,
    "scrapy.extensions.logstats.LogStats": None,
}
LOG_LEVEL = "INFO"
STATS_DUMP = False
