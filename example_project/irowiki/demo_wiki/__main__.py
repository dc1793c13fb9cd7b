"""``python -m irowiki.demo_wiki [pages]``: the demo wiki, for a browser or a crawl.

With a number, it has that many generated pages, no rate limit and no faults.
"""

import sys

from irowiki.demo_wiki import DemoWiki
from irowiki.demo_wiki.content import generated_pages
from irowiki.demo_wiki.faults import NO_FAULTS
from irowiki.demo_wiki.files import generated_files

if len(sys.argv) > 1:
    count = int(sys.argv[1])
    pages, files = generated_pages(count), generated_files(count // 100)
    wiki = DemoWiki(pages, files, limit=None, faults=NO_FAULTS)
else:
    wiki = DemoWiki()
print(
    f"Demo wiki at {wiki.url}, its API at {wiki.api_url} (Ctrl-C stops it)", flush=True
)
try:
    wiki.serve_forever()
except KeyboardInterrupt:
    wiki.server_close()
