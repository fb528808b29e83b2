#include "cli/serve.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "engine/loaded_model.h"
#include "engine/threaded_engine.h"
#include "formats/chat_template.h"
#include "server/access.h"
#include "server/access_log.h"

namespace bz::cli {
namespace {

constexpr int kExitInterrupted = 130;  // as a shell reports a SIGINT

// ---- The model behind the server ----

nlohmann::ordered_json to_json(const std::vector<server::ChatMessage>& messages) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const server::ChatMessage& m : messages) {
    // "developer" is OpenAI's newer name for what templates call "system".
    out.push_back({{"role", m.role == "developer" ? "system" : m.role}, {"content", m.content}});
  }
  return out;
}

Result<server::RenderChat> load_chat(const engine::LoadedModel& model) {
  if (!model.file().has("tokenizer.chat_template")) return server::RenderChat();
  BZ_ASSIGN(const std::string_view source, model.file().get_string("tokenizer.chat_template"));
  BZ_ASSIGN(const formats::ChatTemplate chat, formats::ChatTemplate::parse(std::string(source)));
  formats::ChatTemplateOptions options;
  const formats::Tokenizer& tokenizer = model.tokenizer();
  if (tokenizer.bos()) options.bos_token = tokenizer.token_bytes(*tokenizer.bos());
  if (tokenizer.eos()) options.eos_token = tokenizer.token_bytes(*tokenizer.eos());
  return server::RenderChat([chat, options](const std::vector<server::ChatMessage>& messages,
                                            bool add_generation_prompt) -> Result<std::string> {
    formats::ChatTemplateOptions with = options;
    with.add_generation_prompt = add_generation_prompt;
    auto text = chat.render(to_json(messages), with);
    if (text.ok()) return text;
    return Status(text.status().code(), text.status().message(), "messages");
  });
}

// A model and its engine; the engine goes first.
struct ModelAndEngine {
  std::unique_ptr<engine::LoadedModel> model;
  std::unique_ptr<engine::ThreadedEngine> engine;
};

Result<Served> load_served(const engine::LoadOptions& load) {
  auto owner = std::make_shared<ModelAndEngine>();
  BZ_ASSIGN(owner->model, engine::LoadedModel::load(load, [](const std::string& line) { log::info("{}", line); }));
  BZ_TRY(owner->model->warm_up([](const std::string& line) { log::info("{}", line); }));
  owner->engine = std::make_unique<engine::ThreadedEngine>(owner->model->core(), owner->model->info());
  Served served;
  served.backend.engine = owner->engine.get();
  served.backend.tokenizer = &owner->model->tokenizer();
  auto chat = load_chat(*owner->model);
  if (chat.ok()) {
    served.backend.render_chat = std::move(chat).value();
  } else {
    log::warn("/v1/chat/completions will refuse requests: {}", chat.status().message());
  }
  served.owner = std::move(owner);
  return served;
}

// ---- The process ----

// The server's IO thread. A signal that nobody is left to act on ends the process here.
class IoThread {
 public:
  explicit IoThread(server::Server& server) : server_(server), thread_([this] { run(); }) {}
  ~IoThread() {
    if (!thread_.joinable()) return;
    loading_ = false;
    server_.begin_drain(std::chrono::milliseconds(0));
    thread_.join();
  }

  void loaded() { loading_ = false; }
  server::HttpOutcome join() {
    thread_.join();
    return outcome_;
  }

 private:
  void run() {
    outcome_ = server_.run();
    if (outcome_ == server::HttpOutcome::kSecondSignal) {
      log::warn("second signal: stopping at once");
      std::_Exit(kExitInterrupted);
    }
    if (loading_) std::_Exit(0);  // loading cannot be interrupted, and nothing was served
  }

  server::Server& server_;
  std::atomic<bool> loading_ = true;
  server::HttpOutcome outcome_ = server::HttpOutcome::kDrained;
  std::thread thread_;
};

// Of a --cors-origins value: an origin as browsers send it has a scheme, a host, maybe a port, and nothing behind.
std::string origin_fault(const std::string& text) {
  if (server::can_be_origin(text)) return {};
  return fmt::format("'{}' is no origin; use one such as https://app.example:8443 (no path), or *", text);
}

// An IPv6 address is bracketed in a URL.
std::string url_host(const std::string& host) { return host.find(':') == std::string::npos ? host : "[" + host + "]"; }

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

}  // namespace

Status run_serve(const server::ServerOptions& options, const std::function<Result<Served>()>& load) {
  BZ_ASSIGN(const auto server, server::Server::listen(options));
  IoThread io(*server);
  BZ_ASSIGN(const Served served, load());
  server->attach(served.backend);
  io.loaded();
  const engine::EngineInfo& info = served.backend.engine->info();
  if (info.max_request_tokens < info.max_model_len) {
    log::warn("the cache holds {} tokens of a request, the context is {}; raise --kv-cache-bytes for longer ones",
              info.max_request_tokens, info.max_model_len);
  }
  log::info("serving {} (context {}) at http://{}:{}/ and /v1", info.model_name, info.max_model_len,
            url_host(options.http.host), server->port());
  const server::HttpOutcome outcome = io.join();
  if (!server->engine_failure().empty()) return internal_error("the engine stopped: {}", server->engine_failure());
  if (outcome == server::HttpOutcome::kCutOff) log::warn("the time for running answers is over; some were cut off");
  log::info("stopped");
  return ok_status();
}

void add_serve_options(CLI::App& command, ServeOptions& o) {
  command.add_option("model", o.engine.load.model_path, "a .gguf file")->required();
  command.add_option("--host", o.server.http.host, "address to listen on")->capture_default_str()->check(not_empty());
  command.add_option("--port", o.server.http.port, "0: any free port")->capture_default_str();
  command
      .add_option("--api-key", o.server.api_keys,
                  "ask for this key (Authorization: Bearer KEY); several: repeat it. Better in the environment, where "
                  "other users do not see it")
      ->envname("BLOCKZERO_API_KEY")
      ->check(not_empty());
  command
      .add_option("--cors-origins", o.server.cors_origins,
                  "web origins that may use the server besides its own page, with commas; *: all")
      ->delimiter(',')
      ->check(CLI::Validator(origin_fault, ""));
  command.add_option("--seed", o.server.seed, "for requests without a seed; default: random")->check(seed_range());
  command.add_option("--drain-seconds", o.drain_seconds, "after SIGTERM: time for running answers")
      ->capture_default_str()
      ->check(CLI::Range(0, 86400));
  command.add_option("--max-body-bytes", o.server.http.max_body_bytes, "largest request body")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1024}, int64_t{1} << 30));
  command.add_option("--max-connections", o.server.http.max_connections, "most open connections")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command
      .add_option("--max-waiting-requests", o.server.max_waiting_requests,
                  "requests that may wait beside --max-num-seqs that run, then 503; default: any number")
      ->check(CLI::Range(0, 1'000'000));
  const CLI::Validator seconds = real_range(0.001, 86400.0);
  command.add_option("--read-seconds", o.read_seconds, "time for a whole request to arrive, then 408")
      ->capture_default_str()
      ->check(seconds);
  command.add_option("--idle-seconds", o.idle_seconds, "between requests of a connection, then it is closed")
      ->capture_default_str()
      ->check(seconds);
  command.add_option("--write-seconds", o.write_seconds, "a client that takes nothing of its answer is cut off then")
      ->capture_default_str()
      ->check(seconds);
  command.add_flag("--log-json", o.log_json, "log lines as JSON");
  command.add_option("--access-log", o.access_log, "one JSON object a line for every answer, to a file or - (stdout)");
  add_engine_options(command, o.engine);
  command
      .add_option("--config", o.config, "a file of options, one `name = value` a line; those of the command line win")
      ->check(not_empty());
}

Status serve(const ServeOptions& o) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader of the log that ends does not end the server
  log::set_json(o.log_json);
  BZ_ASSIGN(const engine::LoadOptions load, to_load_options(o.engine));
  server::ServerOptions options = o.server;
  options.http.handle_signals = true;
  options.http.drain_timeout = std::chrono::seconds(o.drain_seconds);
  options.http.read_timeout = to_milliseconds(o.read_seconds);
  options.http.idle_timeout = to_milliseconds(o.idle_seconds);
  options.http.write_timeout = to_milliseconds(o.write_seconds);
  if (!o.access_log.empty()) {
    BZ_ASSIGN(options.access_log, server::open_access_log(o.access_log));
  }
  options.http.max_total_body_bytes = std::max(options.http.max_total_body_bytes, options.http.max_body_bytes);
  return run_serve(options, [&] { return load_served(load); });
}

}  // namespace bz::cli
