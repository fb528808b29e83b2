// Routes: a request -> its answer. IO thread only.
#pragma once

#include <memory>

#include "server/services.h"

namespace bz::server {

// Checks origin, key, path and method, and answers what they refuse: a request is worth its body, or not.
void handle_head(Services& services, Exchange& exchange);
// The same checks, then the route. Every request gets exactly one answer.
void handle_request(Services& services, const std::shared_ptr<Exchange>& exchange);

// One function per route. Those of /v1 and the tokenizer are called only when a backend is attached.
void post_completions(Services& services, std::shared_ptr<Exchange> exchange);
void post_chat_completions(Services& services, std::shared_ptr<Exchange> exchange);
void post_tokenize(Services& services, std::shared_ptr<Exchange> exchange);
void post_detokenize(Services& services, std::shared_ptr<Exchange> exchange);
void post_apply_template(Services& services, std::shared_ptr<Exchange> exchange);
void get_models(Services& services, std::shared_ptr<Exchange> exchange);
void get_health(Services& services, std::shared_ptr<Exchange> exchange);
void get_live(Services& services, std::shared_ptr<Exchange> exchange);
void get_ready(Services& services, std::shared_ptr<Exchange> exchange);
void get_metrics(Services& services, std::shared_ptr<Exchange> exchange);
void get_page(Services& services, std::shared_ptr<Exchange> exchange);

}  // namespace bz::server
