// The routes that look: health, metrics, the web page.
#include "server/json.h"
#include "server/routes.h"
#include "server/web_page.h"

namespace bz::server {

namespace {

const char* health_word(const Services& services, const engine::EngineStats& stats) {
  if (!services.backend) return "loading";
  if (!stats.alive) return "failed";
  if (!stats.null_block_clean) return "null block dirty";
  return services.http->draining() ? "draining" : "ok";
}

enum class Probe { kLive, kReady };

// live: a restart would not help (it would where answers can no longer be trusted). ready: send it requests.
HttpReply health_reply(const Services& services, const engine::EngineStats& stats, Probe probe) {
  const bool loaded = services.backend.has_value();
  const bool live = stats.alive && stats.null_block_clean;
  const bool ready = loaded && live && !services.http->draining();
  const char* clean = !loaded ? "null" : stats.null_block_clean ? "true" : "false";
  std::string body = fmt::format("{{\"status\":\"{}\",\"live\":{},\"ready\":{},\"null_block_clean\":{}",
                                 health_word(services, stats), live, ready, clean);
  if (!stats.failure.empty()) body += ",\"failure\":" + json_string(stats.failure);
  body += "}";
  return {.status = (probe == Probe::kLive ? live : ready) ? 200 : 503, .body = std::move(body)};
}

void answer_health(Services& services, std::shared_ptr<Exchange> exchange, std::string_view route, Probe probe) {
  services.with_stats([&services, exchange, route, probe](const engine::EngineStats& stats) {
    services.reply(*exchange, route, health_reply(services, stats, probe));
  });
}

HttpReply metrics_reply(const Services& services, const engine::EngineStats& stats) {
  const bool loaded = services.backend.has_value();
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = metrics_text(services.metrics, services.http->stats(), loaded ? &stats : nullptr,
                               loaded ? services.backend->engine->info().model_name : std::string())};
}

}  // namespace

void get_health(Services& services, std::shared_ptr<Exchange> exchange) {
  answer_health(services, std::move(exchange), "/health", Probe::kReady);
}
void get_live(Services& services, std::shared_ptr<Exchange> exchange) {
  answer_health(services, std::move(exchange), "/health/live", Probe::kLive);
}
void get_ready(Services& services, std::shared_ptr<Exchange> exchange) {
  answer_health(services, std::move(exchange), "/health/ready", Probe::kReady);
}

void get_metrics(Services& services, std::shared_ptr<Exchange> exchange) {
  services.with_stats([&services, exchange](const engine::EngineStats& stats) {
    services.reply(*exchange, "/metrics", metrics_reply(services, stats));
  });
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
