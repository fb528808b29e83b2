// HttpServer: the acceptor, the set of connections, the sweep of their deadlines, signals and the drain.
#include <atomic>
#include <cstring>
#include <ctime>
#include <unordered_map>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/log.h"
#include "server/http_connection.h"

namespace bz::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

constexpr milliseconds kSweepPeriod{200};
// After running out of file descriptors: wait for some to come back.
constexpr milliseconds kAcceptPause{100};

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

class HttpServerImpl : public HttpServer {
 public:
  HttpServerImpl(const HttpOptions& options, HttpHandlers handlers) {
    host_.options = options;
    host_.handlers = std::move(handlers);
    host_.forget = [this](Connection* c) { forget(c); };
    host_.date = http_date();
    host_.read_buffer.resize(64 << 10);
  }

  Status open() {
    const HttpOptions& o = host_.options;
    error_code ec;
    tcp::resolver resolver(io_);
    const auto found = resolver.resolve(o.host, std::to_string(o.port), ec);
    if (ec || found.empty()) {
      return {StatusCode::kInvalidArgument, fmt::format("--host {}: {}", o.host, ec.message()), "host"};
    }
    const tcp::endpoint endpoint = *found.begin();
    acceptor_.open(endpoint.protocol(), ec);
    if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) acceptor_.bind(endpoint, ec);
    if (!ec) acceptor_.listen(asio::socket_base::max_listen_connections, ec);
    if (!ec) acceptor_.non_blocking(true, ec);
    if (!ec) port_ = acceptor_.local_endpoint(ec).port();
    if (!ec) return ok_status();
    if (ec == asio::error::address_in_use) {
      return {StatusCode::kInvalidArgument,
              fmt::format("--port {}: another program already listens on {}:{}; choose another port", o.port, o.host,
                          o.port),
              "port"};
    }
    return {StatusCode::kInvalidArgument, fmt::format("cannot listen on {}:{}: {}", o.host, o.port, ec.message()),
            "port"};
  }

  uint16_t port() const override { return port_; }

  HttpOutcome run() override {
    accept();
    schedule_sweep();
    if (host_.options.handle_signals) wait_signal();
    for (;;) {
      try {
        io_.run();
        break;
      } catch (const std::exception& e) {
        log::error("http: {}", e.what());
      }
    }
    close_all();
    return outcome_;
  }

  void post(std::function<void()> task) override { asio::post(io_, std::move(task)); }
  void every(milliseconds period, std::function<void()> tick) override {
    ticks_.push_back({period, Clock::now() + period, std::move(tick)});
  }

  void begin_drain(milliseconds timeout) override {
    asio::post(io_, [this, timeout] { drain(timeout); });
  }
  void log_accesses(AccessLog log) override { host_.access_log = std::move(log); }
  bool draining() const override { return host_.draining; }
  HttpStats stats() const override {
    HttpStats s = host_.stats;
    s.connections = static_cast<int64_t>(connections_.size());
    return s;
  }

 private:
  struct Tick {
    milliseconds period;
    Clock::time_point due;
    std::function<void()> call;
  };

  void accept() {
    acceptor_.async_accept([this](error_code ec, tcp::socket socket) {
      if (ec == asio::error::operation_aborted || host_.draining) return;
      if (ec) return pause_accepting(ec);
      admit(std::move(socket));
      accept();
    });
  }

  void pause_accepting(const error_code& ec) {
    log::warn("http: cannot accept a connection: {}", ec.message());
    accept_pause_.expires_after(kAcceptPause);
    accept_pause_.async_wait([this](error_code wait_error) {
      if (!wait_error && !host_.draining) accept();
    });
  }

  void admit(tcp::socket socket) {
    if (static_cast<int>(connections_.size()) >= host_.options.max_connections) return turn_away(std::move(socket));
    auto connection = std::make_shared<Connection>(host_, std::move(socket));
    connections_.emplace(connection.get(), connection);
    connection->start();
  }

  // One try at an answer: a full house owes no more.
  void turn_away(tcp::socket socket) {
    ++host_.stats.refused;
    const std::string body = host_.handlers.error_body(503, "too many connections");
    const std::string bytes = fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
        "Connection: close\r\n\r\n{}",
        body.size(), body);
    error_code ec;
    socket.non_blocking(true, ec);
    socket.send(asio::buffer(bytes), 0, ec);
  }

  void forget(Connection* connection) {
    connections_.erase(connection);
    if (host_.draining && connections_.empty()) io_.stop();
  }

  void schedule_sweep() {
    sweep_timer_.expires_after(kSweepPeriod);
    sweep_timer_.async_wait([this](error_code ec) {
      if (ec) return;
      sweep();
      schedule_sweep();
    });
  }

  void sweep() {
    host_.date = http_date();
    const auto now = Clock::now();
    for (const auto& connection : snapshot()) connection->sweep(now);
    for (Tick& tick : ticks_) {
      if (now < tick.due) continue;
      tick.due = now + tick.period;
      tick.call();
    }
    if (host_.draining && now >= drain_deadline_) {
      outcome_ = HttpOutcome::kCutOff;
      io_.stop();
    }
  }

  void wait_signal() {
    signals_.async_wait([this](error_code ec, int number) {
      if (ec) return;
      if (host_.draining) {
        outcome_ = HttpOutcome::kSecondSignal;
        io_.stop();
        return;
      }
      log::info("signal {}: no new connections; {} open, up to {} s for their answers", number, connections_.size(),
                host_.options.drain_timeout.count() / 1000);
      drain(host_.options.drain_timeout);
      wait_signal();
    });
  }

  void drain(milliseconds timeout) {
    if (host_.draining) return;
    host_.draining = true;
    drain_deadline_ = Clock::now() + timeout;
    error_code ec;
    acceptor_.close(ec);
    accept_pause_.cancel();
    for (const auto& connection : snapshot()) connection->drain();
    if (connections_.empty()) io_.stop();
  }

  void close_all() {
    for (const auto& connection : snapshot()) connection->abort();
  }

  // Connections may end while one walks over them.
  std::vector<std::shared_ptr<Connection>> snapshot() const {
    std::vector<std::shared_ptr<Connection>> all;
    all.reserve(connections_.size());
    for (const auto& [pointer, connection] : connections_) all.push_back(connection);
    return all;
  }

  ConnectionHost host_;  // before io_: pending handlers own connections, which refer to it
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer sweep_timer_{io_}, accept_pause_{io_};
  asio::signal_set signals_{io_};
  std::vector<Tick> ticks_;
  Clock::time_point drain_deadline_;
  uint16_t port_ = 0;  // since open(): any thread may ask
  HttpOutcome outcome_ = HttpOutcome::kDrained;

 public:
  Status catch_signals() {
    error_code ec;
    signals_.add(SIGINT, ec);
    if (!ec) signals_.add(SIGTERM, ec);
    return ec ? internal_error("cannot handle signals: {}", ec.message()) : ok_status();
  }
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpOptions& options, HttpHandlers handlers) {
  auto server = std::make_unique<HttpServerImpl>(options, std::move(handlers));
  BZ_TRY(server->open());
  if (options.handle_signals) BZ_TRY(server->catch_signals());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace bz::server
