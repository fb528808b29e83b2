// Server: the OpenAI-compatible front end of an engine.
//
//   auto server = Server::listen(options);        // the port is taken now
//   std::thread io([&] { server->run(); });       // answers /health with 503 "loading" meanwhile
//   server->attach(backend);                      // from now on requests are served
//   io.join();                                    // SIGTERM, SIGINT or begin_drain() end it
//
// Routes: POST /v1/completions, /v1/chat/completions, /tokenize, /detokenize, /apply-template; GET /v1/models, /health,
// /health/live, /health/ready, /metrics, /.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "formats/tokenizer.h"
#include "server/http.h"
#include "server/openai_request.h"

namespace bz::server {

struct ServerOptions {
  HttpOptions http;
  std::vector<std::string> api_keys;      // empty: no key is asked for
  std::vector<std::string> cors_origins;  // besides the server's own; "*": all
  std::optional<uint64_t> seed;           // for requests without one: seed, seed + 1, ...; absent: random
  // Choices that may wait beside the engine's max_num_seqs that run; more are refused (503). Absent: any number.
  std::optional<int32_t> max_waiting_requests;
  // After the engine fail-stopped, drain and return: a supervisor starts a new process.
  bool exit_on_engine_failure = true;
  AccessLog access_log;  // empty: none
};

// Messages -> the prompt's text, by the model's chat template. Thread-safe.
using RenderChat =
    std::function<Result<std::string>(const std::vector<ChatMessage>& messages, bool add_generation_prompt)>;

// What is served. Everything outlives the server's run(), after which nothing of it is used any more.
struct Backend {
  engine::EngineClient* engine = nullptr;
  const formats::Tokenizer* tokenizer = nullptr;
  RenderChat render_chat;  // empty: the model has no chat template
};

class Server {
 public:
  // Errors: as HttpServer::listen.
  static Result<std::unique_ptr<Server>> listen(const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;
  // Any thread, once.
  void attach(Backend backend);
  // Serves until a drain ended. Called once.
  HttpOutcome run();
  // Any thread.
  void begin_drain(std::chrono::milliseconds timeout);
  // The engine fail-stopped while serving; empty if not. After run().
  const std::string& engine_failure() const;

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace bz::server
