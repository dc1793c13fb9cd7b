// node express_site.cjs PORT LOG LIMIT: pages behind express-rate-limit, LIMIT per second.
const { appendFileSync } = require("node:fs");
const express = require("express");
const { rateLimit } = require("express-rate-limit");

const [port, log, limit] = process.argv.slice(2);
const app = express();
app.use((request, response, next) => {
  const at = Date.now() / 1000;
  response.on("finish", () => {
    const wait = response.getHeader("Retry-After") || "-";
    appendFileSync(log, `${at} ${response.statusCode} ${request.originalUrl} ${wait}\n`);
  });
  next();
});
app.use("/page", rateLimit({ windowMs: 1000, limit: Number(limit), standardHeaders: "draft-7" }));
app.get("/page/:number", (request, response) => response.send("<html>A page.</html>"));
app.listen(Number(port), "127.0.0.1");
