// RunningServer: a Server over a MockEngine on a free loopback port, with its IO thread. For tests.
#pragma once

#include <stdexcept>
#include <thread>

#include "server/mock_engine.h"
#include "server/raw_client.h"
#include "server/server.h"

namespace bz::server {

inline ServerOptions test_options() {
  ServerOptions options;
  options.http.port = 0;
  return options;
}

class RunningServer {
 public:
  explicit RunningServer(const ServerOptions& options = test_options(),
                         std::chrono::microseconds step_time = std::chrono::microseconds(200), bool attach = true)
      : tokenizer(formats::byte_tokenizer()), engine(std::make_unique<MockEngine>(step_time)) {
    auto listening = Server::listen(options);
    BZ_CHECK_MSG(listening.ok(), "{}", listening.status().message());
    server = std::move(listening).value();
    port = server->port();
    if (attach) this->attach();
    io_ = std::thread([this] { outcome = server->run(); });
  }
  ~RunningServer() { stop(); }

  void attach() { server->attach({engine.get(), tokenizer.get(), render}); }
  void stop(std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) {
    if (!io_.joinable()) return;
    server->begin_drain(timeout);
    io_.join();
  }
  void join() { io_.join(); }

  // "user: hi\nassistant:"
  static Result<std::string> render(const std::vector<ChatMessage>& messages, bool add_generation_prompt) {
    std::string text;
    for (const ChatMessage& m : messages) {
      if (m.content.starts_with("THROW")) throw std::runtime_error("made to throw");
      if (m.content == "RAISE") return invalid_field("messages", "the chat template refused the messages");
      text += m.role + ": " + m.content + "\n";
    }
    return text + (add_generation_prompt ? "assistant:" : "");
  }

  std::unique_ptr<formats::Tokenizer> tokenizer;
  std::unique_ptr<MockEngine> engine;
  std::unique_ptr<Server> server;
  uint16_t port = 0;
  HttpOutcome outcome = HttpOutcome::kDrained;

 private:
  std::thread io_;
};

// Waits until `condition` holds; false after five seconds.
template <class Condition>
bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace bz::server
