// The routes that take a body: completions, chat, tokenizer; and the list of models.
#include <atomic>

#include "base/log.h"
#include "server/generation.h"
#include "server/json.h"
#include "server/openai_request.h"
#include "server/openai_response.h"
#include "server/routes.h"

namespace bz::server {
namespace {

// Bodies above this are parsed and tokenised by the worker: about a millisecond of the IO thread's time.
constexpr size_t kInlineBodyBytes = 16 << 10;

Status check_model(const Backend& backend, const std::string& asked) {
  const std::string& served = backend.engine->info().model_name;
  if (asked.empty() || asked == served) return ok_status();
  return {StatusCode::kNotFound,
          fmt::format("the model {} is not served here; {} is", json_string(asked.substr(0, 100)), json_string(served)),
          "model"};
}

// Computes an answer from a body: `work(body)` runs here or on the worker, `done(result)` on the IO thread. What throws
// on the worker fails this request alone (ENG-1); here the connection sees to that. The worker does nothing for clients
// that left before it came to them: others wait behind.
template <class Work, class Done>
void with_body(Services& services, const std::shared_ptr<Exchange>& exchange, std::string_view route, Work work,
               Done done) {
  std::string body = exchange->take_body();
  if (body.size() <= kInlineBodyBytes) return done(work(body));
  const auto left = std::make_shared<std::atomic<bool>>(false);
  exchange->watch({}, [left] { *left = true; });
  const size_t bytes = body.size();
  auto task = [&services, route, body = std::move(body), work, done, left] {
    if (*left) return;
    auto result = std::make_shared<decltype(work(body))>(internal_error("internal error"));
    try {
      *result = work(body);
    } catch (const std::exception& e) {
      log::error("{}: {}", route, e.what());
    }
    services.http->post([result, done] { done(std::move(*result)); });
  };
  if (services.worker->submit(bytes, std::move(task))) return;
  services.reply(*exchange, route, error_reply(503, "too many large requests at once; try again"));
}

using Parse = Result<GenerationRequest> (*)(std::string_view, const RequestLimits&);

void generate(Services& services, std::shared_ptr<Exchange> exchange, std::string_view route, Parse parse) {
  const auto arrival = std::chrono::steady_clock::now();
  auto work = [backend = *services.backend, limits = services.limits(),
               parse](std::string_view body) -> Result<PreparedRequest> {
    BZ_ASSIGN(GenerationRequest request, parse(body, limits));
    BZ_TRY(check_model(backend, request.model));
    return prepare(backend, limits, std::move(request));
  };
  auto done = [&services, exchange, route, arrival](Result<PreparedRequest> prepared) {
    if (!exchange->connected()) return;  // the client left while the worker was at it
    if (!prepared.ok()) return services.reply(*exchange, route, error_reply(prepared.status()));
    // The API key, if one is asked for, and the user that the body names: each gets a fair share.
    if (!services.options.api_keys.empty()) prepared->client = exchange->request().header("authorization");
    prepared->client += '\n' + prepared->request.user;
    std::make_shared<Generation>(services, exchange, std::move(prepared).value(), arrival)->start();
  };
  with_body(services, exchange, route, work, done);
}

// A route whose answer is made by a pure function of the body.
template <class Answer>
void answer_body(Services& services, std::shared_ptr<Exchange> exchange, std::string_view route, Answer answer) {
  auto done = [&services, exchange, route](Result<std::string> json) {
    if (!json.ok()) return services.reply(*exchange, route, error_reply(json.status()));
    services.reply(*exchange, route, {.body = std::move(json).value()});
  };
  with_body(services, exchange, route, answer, done);
}

std::string model_json(const Services& services) {
  const engine::EngineInfo& info = services.backend->engine->info();
  return fmt::format(
      "{{\"id\":{0},\"object\":\"model\",\"created\":{1},\"owned_by\":\"blockzero\",\"root\":{0},"
      "\"parent\":null,\"max_model_len\":{2}}}",
      json_string(info.model_name), services.started, info.max_model_len);
}

}  // namespace

void post_completions(Services& services, std::shared_ptr<Exchange> exchange) {
  generate(services, std::move(exchange), "/v1/completions", parse_completion_request);
}

void post_chat_completions(Services& services, std::shared_ptr<Exchange> exchange) {
  generate(services, std::move(exchange), "/v1/chat/completions", parse_chat_request);
}

void post_tokenize(Services& services, std::shared_ptr<Exchange> exchange) {
  auto answer = [backend = *services.backend](std::string_view body) -> Result<std::string> {
    BZ_ASSIGN(const TokenizeRequest request, parse_tokenize_request(body));
    BZ_TRY(check_model(backend, request.model));
    const auto tokens =
        backend.tokenizer->encode(request.text, {.parse_special = true, .add_bos = request.add_special_tokens});
    return fmt::format("{{\"count\":{},\"max_model_len\":{},\"tokens\":[{}]}}", tokens.size(),
                       backend.engine->info().max_model_len, fmt::join(tokens, ","));
  };
  answer_body(services, std::move(exchange), "/tokenize", answer);
}

void post_detokenize(Services& services, std::shared_ptr<Exchange> exchange) {
  auto answer = [backend = *services.backend,
                 limits = services.limits()](std::string_view body) -> Result<std::string> {
    BZ_ASSIGN(const DetokenizeRequest request, parse_detokenize_request(body, limits));
    BZ_TRY(check_model(backend, request.model));
    return fmt::format("{{\"prompt\":{}}}", json_string(backend.tokenizer->decode(request.tokens)));
  };
  answer_body(services, std::move(exchange), "/detokenize", answer);
}

void post_apply_template(Services& services, std::shared_ptr<Exchange> exchange) {
  auto answer = [backend = *services.backend,
                 limits = services.limits()](std::string_view body) -> Result<std::string> {
    BZ_ASSIGN(const GenerationRequest request, parse_chat_request(body, limits));
    BZ_TRY(check_model(backend, request.model));
    if (!backend.render_chat) return invalid_field("messages", "this model has no chat template");
    BZ_ASSIGN(const std::string prompt, backend.render_chat(request.messages, request.add_generation_prompt));
    return fmt::format("{{\"prompt\":{}}}", json_string(prompt));
  };
  answer_body(services, std::move(exchange), "/apply-template", answer);
}

void get_models(Services& services, std::shared_ptr<Exchange> exchange) {
  constexpr std::string_view kPath = "/v1/models";
  const std::string_view path = exchange->request().path;
  if (path == kPath || path == "/v1/models/") {
    const std::string body = fmt::format("{{\"object\":\"list\",\"data\":[{}]}}", model_json(services));
    return services.reply(*exchange, kPath, {.body = body});
  }
  const std::string asked = percent_decoded(path.substr(kPath.size() + 1));  // "org/model" comes as org%2Fmodel
  const Status status = check_model(*services.backend, asked);
  if (!status.ok()) return services.reply(*exchange, kPath, error_reply(status));
  services.reply(*exchange, kPath, {.body = model_json(services)});
}

}  // namespace bz::server
