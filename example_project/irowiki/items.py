"""The records of an archive, one class for each file that they are written to."""

from scrapy import Field, Item


class SiteInfo(Item):
    """``siteinfo.json``: the wiki's own words about itself."""

    general = Field()
    namespaces = Field()
    namespacealiases = Field()
    statistics = Field()
    rightsinfo = Field()


class Page(Item):
    """``pages.jsonl``: written when the page's whole history has been."""

    pageid = Field()
    ns = Field()
    title = Field()
    redirect = Field()
    revid = Field()
    categories = Field()
    templates = Field()


class Revision(Item):
    """``revisions.jsonl``. ``hidden`` has MediaWiki's names for what it does not show;
    a hidden text is not there at all."""

    pageid = Field()
    revid = Field()
    parentid = Field()
    timestamp = Field()
    user = Field()
    comment = Field()
    sha1 = Field()
    text = Field()
    hidden = Field()


class File(Item):
    """``files.jsonl``: written when the file is at ``path``, and its SHA-1 is right."""

    title = Field()
    url = Field()
    sha1 = Field()
    size = Field()
    path = Field()
