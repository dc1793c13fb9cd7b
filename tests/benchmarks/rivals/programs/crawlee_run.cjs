// node crawlee_run.cjs URLS: a crawl with Crawlee, with its defaults and robots.txt.
const { readFileSync } = require("node:fs");
const { HttpCrawler, Configuration } = require("@crawlee/http");

const urls = readFileSync(process.argv[2], "utf8").trim().split("\n");
const crawler = new HttpCrawler(
  {
    respectRobotsTxtFile: true,
    async requestHandler() {},
  },
  new Configuration({ persistStorage: false, logLevel: 0 }),
);
crawler.run(urls).then(() => process.exit(0));
