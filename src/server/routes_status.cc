// The routes that look: health, metrics, the web page.
#include "server/json.h"
#include "server/routes.h"
#include "server/web_page.h"

namespace bz::server {

void get_health(Services& services, std::shared_ptr<Exchange> exchange) {
  engine::EngineStats stats;
  const bool loaded = services.backend.has_value();
  if (loaded) stats = services.backend->engine->stats();
  const bool draining = services.http->draining();
  const bool ready = loaded && stats.alive && !draining;
  const char* status = "ok";
  if (!loaded) {
    status = "loading";
  } else if (!stats.alive) {
    status = "failed";
  } else if (!stats.null_block_clean) {
    status = "null block dirty";
  } else if (draining) {
    status = "draining";
  }
  // A dirty null block means that answers can no longer be trusted.
  const bool healthy = ready && stats.null_block_clean;
  std::string body = fmt::format("{{\"status\":\"{}\",\"live\":{},\"ready\":{},\"null_block_clean\":{}", status,
                                 stats.alive, ready, loaded ? (stats.null_block_clean ? "true" : "false") : "null");
  if (!stats.failure.empty()) body += ",\"failure\":" + json_string(stats.failure);
  body += "}";
  services.reply(*exchange, "/health", {.status = healthy ? 200 : 503, .body = std::move(body)});
}

void get_metrics(Services& services, std::shared_ptr<Exchange> exchange) {
  engine::EngineStats stats;
  std::string model;
  if (services.backend) {
    stats = services.backend->engine->stats();
    model = services.backend->engine->info().model_name;
  }
  services.reply(
      *exchange, "/metrics",
      {.content_type = "text/plain; version=0.0.4; charset=utf-8",
       .body = metrics_text(services.metrics, services.http->stats(), services.backend ? &stats : nullptr, model)});
}

void get_page(Services& services, std::shared_ptr<Exchange> exchange) {
  services.reply(*exchange, "/",
                 {.content_type = "text/html; charset=utf-8",
                  .body = std::string(web_page()),
                  .headers = {{"Content-Security-Policy",
                               "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                               "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                              {"X-Content-Type-Options", "nosniff"}}});
}

}  // namespace bz::server
