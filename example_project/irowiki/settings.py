BOT_NAME = "irowiki"
SPIDER_MODULES = ["irowiki.spiders"]

# Say who you are, and how you can be reached if your crawl causes problems.
USER_AGENT = "irowiki-archiver/0.1 (+https://example.org/put-your-address-here)"

# Everything about rates is here: the spider does not deal with them.
ADDONS = {"scrapy_politeness.Addon": 500}
ROBOTSTXT_OBEY = True
CONCURRENT_REQUESTS_PER_DOMAIN = 1
POLITENESS_START_RATE = 1
POLITENESS_MAX_RATE = 5
# Seconds: a wiki whose database lags behind by more refuses the request, and is waited
# for. "" for a wiki that must answer in any case.
MAXLAG = 5
# Enough to wait for a wiki that is read-only for an hour.
POLITENESS_MAX_RESCHEDULES = 100
# irowiki.progress knows more: the size of the wiki.
POLITENESS_PROGRESS = False
# Loopback is exempt by default, but the demo wiki is on loopback.
POLITENESS_EXEMPT: list[str] = []

# Contains a folder per wiki, with the job directory (JOBDIR) of its crawl.
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

# The spider only repeats requests on purpose, and a filter's memory would keep growing.
DUPEFILTER_CLASS = "scrapy.dupefilters.BaseDupeFilter"
# A continued query may contain several long titles; dropping it would lose pages.
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
