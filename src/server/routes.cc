#include "server/routes.h"

#include "server/access.h"
#include "server/openai_response.h"

namespace bz::server {
namespace {

struct Route {
  std::string_view path;  // ends in '/': also everything below
  std::string_view method;
  void (*call)(Services&, std::shared_ptr<Exchange>);
  bool open = false;  // no API key needed
  bool needs_backend = true;
  bool queues = false;  // its requests wait for a place in the batch
};

constexpr Route kRoutes[] = {
    {"/v1/completions", "POST", post_completions, false, true, true},
    {"/v1/chat/completions", "POST", post_chat_completions, false, true, true},
    {"/v1/models", "GET", get_models},
    {"/v1/models/", "GET", get_models},
    {"/tokenize", "POST", post_tokenize},
    {"/detokenize", "POST", post_detokenize},
    {"/apply-template", "POST", post_apply_template},
    {"/health", "GET", get_health, true, false},
    {"/health/live", "GET", get_live, true, false},
    {"/health/ready", "GET", get_ready, true, false},
    {"/metrics", "GET", get_metrics, true, false},
    {"/", "GET", get_page, true, false},
};

const Route* find_route(std::string_view path) {
  for (const Route& route : kRoutes) {
    const bool below = route.path.size() > 1 && route.path.ends_with('/') && path.starts_with(route.path);
    if (path == route.path || below) return &route;
  }
  return nullptr;
}

std::string route_list() {
  std::string list;
  for (const Route& route : kRoutes) {
    if (route.path != "/" && route.path.ends_with('/')) continue;  // its list is there too
    if (!list.empty()) list += ", ";
    list += route.path;
  }
  return list;
}

void refuse(Services& services, Exchange& exchange, std::string_view route, int status, std::string_view message,
            std::string_view code = {}, const HeaderList& headers = {}) {
  HttpReply answer = error_reply(status, message, {}, code);
  answer.headers.insert(answer.headers.end(), headers.begin(), headers.end());
  services.reply(exchange, route, std::move(answer));
}

// Puts the headers on that every answer has. False: the origin is foreign, and was refused.
bool admit_origin(Services& services, Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const std::string_view origin = request.header("origin");
  const bool loopback = is_loopback_name(services.options.http.host);
  const OriginKind kind = classify_origin(origin, request.header("host"), services.options.cors_origins, loopback);
  if (kind == OriginKind::kForeign) {
    refuse(services, exchange, "(origin)", 403,
           "this origin may not use the server; start it with --cors-origins to allow it", "origin_not_allowed");
    return false;
  }
  if (kind == OriginKind::kAllowed) {
    exchange.add_header("Access-Control-Allow-Origin", std::string(origin));
    exchange.add_header("Access-Control-Expose-Headers", "X-Request-Id");
    exchange.add_header("Vary", "Origin");
  }
  return true;
}

void answer_options(Services& services, Exchange& exchange, const Route& route) {
  const std::string methods = route.method == "GET" ? "GET, HEAD, OPTIONS" : fmt::format("{}, OPTIONS", route.method);
  services.reply(exchange, route.path,
                 {.status = 204,
                  .content_type = {},
                  .headers = {{"Allow", methods},
                              {"Access-Control-Allow-Methods", methods},
                              {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id"},
                              {"Access-Control-Max-Age", "600"}}});
}

// The route that is to answer; nullptr: answered here.
const Route* admit(Services& services, Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const std::string_view id = sane_request_id(request.header("x-request-id"));
  exchange.add_header("X-Request-Id", id.empty() ? services.new_id("req-") : std::string(id));
  if (!admit_origin(services, exchange)) return nullptr;

  const Route* route = find_route(request.path);
  if (!route) {
    refuse(services, exchange, "(none)", 404, "there is no such path here; there are " + route_list(), "not_found");
    return nullptr;
  }
  const std::string_view method = request.method;
  if (method == "OPTIONS") {
    answer_options(services, exchange, *route);
    return nullptr;
  }
  if (method != route->method && !(method == "HEAD" && route->method == "GET")) {
    const std::string allow = route->method == "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
    refuse(services, exchange, route->path, 405, fmt::format("{} takes {}", route->path, allow), "method_not_allowed",
           {{"Allow", allow}});
    return nullptr;
  }
  if (!route->open && !key_accepted(services.options.api_keys, request.header("authorization"))) {
    refuse(services, exchange, route->path, 401, "a valid API key is needed: Authorization: Bearer KEY",
           "invalid_api_key", {{"WWW-Authenticate", "Bearer"}});
    return nullptr;
  }
  if (route->needs_backend && !services.backend) {
    refuse(services, exchange, route->path, 503, "the model is still loading", "loading");
    return nullptr;
  }
  if (route->queues && services.queue_is_full()) {
    services.reply(exchange, route->path, services.refuse_full_queue());
    return nullptr;
  }
  return route;
}

}  // namespace

void handle_head(Services& services, Exchange& exchange) { admit(services, exchange); }

void handle_request(Services& services, const std::shared_ptr<Exchange>& exchange) {
  if (const Route* route = admit(services, *exchange)) route->call(services, exchange);
}

}  // namespace bz::server
