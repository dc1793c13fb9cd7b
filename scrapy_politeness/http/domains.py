"""Which domain a host belongs to, by the public suffix list."""

from __future__ import annotations

from functools import lru_cache

from tldextract import TLDExtract

# The copy that comes with tldextract: nothing is downloaded, nothing is written. Names
# below which others offer subdomains, such as blogspot.com, count as domains: whoever
# runs it feels the load of all of them.
_extract = TLDExtract(
    cache_dir=None, suffix_list_urls=(), include_psl_private_domains=False
)


@lru_cache(maxsize=10_000)
def domain_of(host: str) -> str:
    """Return the registrable domain; for an address, or a name without one, the host
    itself."""
    found = _extract(host)
    return f"{found.domain}.{found.suffix}" if found.domain and found.suffix else host
