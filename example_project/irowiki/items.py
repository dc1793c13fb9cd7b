"""The records of an archive, one class per file."""

from scrapy import Field, Item


class SiteInfo(Item):
    """``siteinfo.json``: what the wiki says about itself."""

    general = Field()
    namespaces = Field()
    namespacealiases = Field()
    statistics = Field()
    rightsinfo = Field()


class Page(Item):
    """``pages.jsonl``: written after the page's whole history."""

    pageid = Field()
    ns = Field()
    title = Field()
    redirect = Field()
    revid = Field()
    categories = Field()
    templates = Field()


class Revision(Item):
    """``revisions.jsonl``. ``hidden`` has MediaWiki's names for what is not public; a
    revision with a hidden text has no ``text``."""

    pageid = Field()
    revid = Field()
    parentid = Field()
    timestamp = Field()
    user = Field()
    userid = Field()
    minor = Field()
    comment = Field()
    sha1 = Field()
    contentmodel = Field()
    contentformat = Field()
    text = Field()
    hidden = Field()


class File(Item):
    """``files.jsonl``: written once the file is at ``path`` with the correct SHA-1."""

    title = Field()
    url = Field()
    sha1 = Field()
    size = Field()
    timestamp = Field()
    user = Field()
    comment = Field()
    path = Field()
