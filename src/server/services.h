// Services: what routes share. Used on the IO thread only, except `backend` (see server.h) and `inbox`.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "server/http.h"
#include "server/metrics.h"
#include "server/output_inbox.h"
#include "server/server.h"
#include "server/worker.h"

namespace bz::server {

struct Services {
  ServerOptions options;
  std::unique_ptr<HttpServer> http;
  std::optional<Backend> backend;  // set once, on the IO thread
  std::shared_ptr<OutputInbox> inbox;
  Metrics metrics;
  std::unique_ptr<Worker> worker;    // texts
  std::unique_ptr<Worker> observer;  // asks the engine for its stats, which may wait for a step
  std::mt19937_64 random{std::random_device{}()};
  uint64_t next_seed = 0;  // used if options.seed is set
  int64_t started = 0;     // seconds since 1970
  std::string engine_failure;
  int64_t choices_in_engine = 0;  // that run or wait there

  RequestLimits limits() const {
    const engine::EngineInfo& info = backend->engine->info();
    return {info.max_model_len, info.vocab_size, info.max_request_tokens};
  }
  // A response's id: unguessable is not needed, unique is.
  std::string new_id(std::string_view prefix) { return fmt::format("{}{:016x}{:08x}", prefix, random(), ++ids_); }
  uint64_t new_seed() { return options.seed ? next_seed++ : random(); }
  // Calls `done` with the engine's stats on the IO thread, later; with empty ones if nothing is attached. The engine is
  // asked once for all who came before: with a step of seconds under way nobody waits for more than two answers.
  using TakeStats = std::function<void(const engine::EngineStats&)>;
  void with_stats(TakeStats done);
  // As many requests wait as may (ServerOptions::max_waiting_requests). One that is let in may have several choices.
  bool queue_is_full() const;
  // The answer then.
  HttpReply refuse_full_queue();
  // Answers, and counts the answer.
  void reply(Exchange& exchange, std::string_view route, HttpReply answer);

 private:
  void ask_engine();

  std::vector<TakeStats> asking_, waiting_;  // for the answer under way, for the next one
  uint32_t ids_ = 0;
};

}  // namespace bz::server
