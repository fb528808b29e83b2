#include "server/server.h"

#include <ctime>

#include "base/log.h"
#include "server/openai_response.h"
#include "server/routes.h"

namespace bz::server {
namespace {

constexpr std::chrono::milliseconds kEngineCheckPeriod{500};
// After a fail-stop every request already has its error: what is left is to send it.
constexpr std::chrono::milliseconds kFailedDrain{2'000};

void check_engine(Services& s, const engine::EngineStats& stats) {
  if (stats.alive || !s.engine_failure.empty() || !s.options.exit_on_engine_failure) return;
  s.engine_failure = stats.failure.empty() ? "the engine stopped" : stats.failure;
  log::error("engine: {}", s.engine_failure);
  s.http->begin_drain(kFailedDrain);
}

}  // namespace

struct Server::Impl {
  Services services;

  ~Impl() {
    services.inbox->close();  // the engine may outlive this
    services.worker.reset();  // before what their tasks use
    services.observer.reset();
  }
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::listen(const ServerOptions& options) {
  auto impl = std::make_unique<Impl>();
  Services& s = impl->services;
  s.options = options;
  s.started = std::time(nullptr);
  if (options.seed) s.next_seed = *options.seed;
  s.inbox = std::make_shared<OutputInbox>([&s](std::function<void()> task) { s.http->post(std::move(task)); });
  s.worker = std::make_unique<Worker>(static_cast<size_t>(options.http.max_total_body_bytes));
  s.observer = std::make_unique<Worker>(1);
  HttpHandlers handlers;
  handlers.head = [&s](const std::shared_ptr<Exchange>& exchange) { handle_head(s, *exchange); };
  handlers.request = [&s](const std::shared_ptr<Exchange>& exchange) { handle_request(s, exchange); };
  handlers.error_body = [](int status, std::string_view message) { return error_body(status, message); };
  BZ_ASSIGN(s.http, HttpServer::listen(options.http, std::move(handlers)));
  if (options.access_log) s.http->log_accesses(options.access_log);
  s.http->every(kEngineCheckPeriod,
                [&s] { s.with_stats([&s](const engine::EngineStats& stats) { check_engine(s, stats); }); });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

uint16_t Server::port() const { return impl_->services.http->port(); }

void Server::attach(Backend backend) {
  BZ_CHECK(backend.engine && backend.tokenizer);
  impl_->services.http->post([this, backend = std::move(backend)] { impl_->services.backend = backend; });
}

HttpOutcome Server::run() {
  const HttpOutcome outcome = impl_->services.http->run();
  // From here on nothing touches the backend: its owner may go.
  impl_->services.inbox->close();
  impl_->services.worker.reset();
  impl_->services.observer.reset();
  return outcome;
}

void Server::begin_drain(std::chrono::milliseconds timeout) { impl_->services.http->begin_drain(timeout); }

const std::string& Server::engine_failure() const { return impl_->services.engine_failure; }

}  // namespace bz::server
