// Connection: its life, and what it reads. (http_connection_write.cc: what it writes.)
#include "server/http_connection.h"

#include <boost/asio/post.hpp>

#include "base/log.h"
#include "server/http_exchange.h"

namespace bz::server {
namespace {

// Pipelined bytes kept while an answer is being made; beyond this the socket is left unread.
constexpr size_t kMaxPipelinedBytes = 64 << 10;

namespace asio = boost::asio;
using boost::system::error_code;

}  // namespace

// ---- Life ----

Connection::Connection(ConnectionHost& host, asio::ip::tcp::socket socket)
    : host_(host),
      socket_(std::move(socket)),
      parser_(host.options.max_header_bytes, host.options.max_body_bytes),
      since_(Clock::now()) {}

Connection::~Connection() { BZ_CHECK(!exchange_); }

void Connection::start() {
  error_code ec;
  socket_.non_blocking(true, ec);
  socket_.set_option(asio::ip::tcp::no_delay(true), ec);
  socket_.set_option(asio::socket_base::send_buffer_size(host_.options.send_buffer_bytes), ec);
  if (host_.access_log) client_ = socket_.remote_endpoint(ec).address().to_string();
  wait_readable();
}

void Connection::sweep(Clock::time_point now) {
  const HttpOptions& o = host_.options;
  const auto age = now - since_;
  if (discarding_) {
    if (age > o.linger_timeout) close();
  } else if (!output_.empty()) {
    if (age > o.write_timeout) abort();
  } else if (exchange_) {
    return;
  } else if (parser_.state() == RequestParser::State::kStart) {
    if (age > o.idle_timeout) close();
  } else if (age > o.read_timeout) {
    refuse(408, "the request took too long to arrive");
  }
}

void Connection::drain() {
  keep_alive_ = false;
  const bool idle = !exchange_ && output_.empty() && parser_.state() == RequestParser::State::kStart;
  if (idle && !discarding_) close_when_sent();
}

void Connection::abort() {
  if (closed_) return;
  const auto self = shared_from_this();
  close();
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  const auto self = shared_from_this();
  host_.body_bytes -= std::exchange(body_bytes_, 0);
  error_code ec;
  socket_.close(ec);
  if (auto exchange = std::exchange(exchange_, nullptr)) {
    exchange->socket_closed();
    log_access(*exchange, true);
  }
  host_.forget(this);
}

// ---- Reading ----

void Connection::wait_readable() {
  if (closed_ || waiting_readable_ || input_.size() >= kMaxPipelinedBytes) return;
  waiting_readable_ = true;
  socket_.async_wait(asio::socket_base::wait_read, [self = shared_from_this()](error_code ec) {
    self->waiting_readable_ = false;
    if (!ec) self->on_readable();
  });
}

void Connection::on_readable() {
  if (closed_) return;
  std::string& buffer = host_.read_buffer;
  error_code ec;
  const size_t n = socket_.receive(asio::buffer(buffer.data(), buffer.size()), 0, ec);
  if (ec == asio::error::would_block) return wait_readable();
  // The end of the client's half counts as its leaving: nobody who still wants an answer closes before it came.
  if (ec) return abort();
  if (!discarding_) feed(std::string_view(buffer.data(), n));
  wait_readable();
}

void Connection::feed(std::string_view fresh) {
  const bool from_input = !input_.empty();
  if (from_input) input_.append(fresh);
  std::string_view rest = from_input ? std::string_view(input_) : fresh;
  parse(rest);
  if (closing_ || closed_) {
    input_.clear();
  } else if (from_input) {
    input_.erase(0, input_.size() - rest.size());
  } else {
    input_.assign(rest);
  }
}

// Parses and dispatches from the front of `bytes` until an exchange is under way, more bytes are needed, or the client
// does not read the answers it already has.
void Connection::parse(std::string_view& bytes) {
  parsing_ = true;
  while (!exchange_ && !closing_ && !closed_ && output_.empty() && !bytes.empty()) {
    const auto before = parser_.state();
    const size_t n = parser_.feed(bytes);
    bytes.remove_prefix(n);
    const auto state = parser_.state();
    if (before == RequestParser::State::kStart && state != before) since_ = Clock::now();
    if (before == RequestParser::State::kBody) {
      body_bytes_ += static_cast<int64_t>(n);
      host_.body_bytes += static_cast<int64_t>(n);
    }
    if (state == RequestParser::State::kBad) {
      refuse(parser_.error_status(), parser_.error_message());
    } else if (body_bytes_ > kSmallBodyBytes && host_.body_bytes > host_.options.max_total_body_bytes) {
      refuse(503, "too many large requests at once; try again");
    } else if (state == RequestParser::State::kBody && !header_seen_) {
      header_seen_ = true;
      if (!on_header()) break;
    } else if (state == RequestParser::State::kComplete) {
      dispatch();
    } else if (n == 0) {
      break;
    }
  }
  parsing_ = false;
}

// The header of a request with a body arrived. False: the connection does not go on to the body.
bool Connection::on_header() {
  const std::string expect = parser_.expect();
  if (!expect.empty() && expect != "100-continue") {
    refuse(417, "only 'Expect: 100-continue' is supported");
    return false;
  }
  if (!worth_its_body()) return false;
  if (!expect.empty() && !parser_.http_1_0()) send("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

// Asked before memory is given to the body: of who has no key, not even that is read. False: answered. After a small
// body, which is read off unkept, the connection goes on; to close it tells the client not to send a large one.
bool Connection::worth_its_body() {
  const int64_t length = parser_.content_length();
  const bool drops = length >= 0 && length <= kSmallBodyBytes && parser_.expect().empty();
  http_1_0_ = parser_.http_1_0();
  begin_exchange(parser_.head(), parser_.keep_alive() && drops);
  const auto exchange = exchange_;
  call(host_.handlers.head);
  if (exchange->connected()) {
    exchange->let_go();
    exchange_.reset();
    return true;
  }
  ++host_.stats.requests;
  if (closing_ || closed_) return false;
  header_seen_ = false;
  parser_.drop_body();
  return true;
}

void Connection::dispatch() {
  header_seen_ = false;
  ++host_.stats.requests;
  const bool keep_alive = parser_.keep_alive();
  http_1_0_ = parser_.http_1_0();
  begin_exchange(parser_.take(), keep_alive);
  call(host_.handlers.request);
  host_.body_bytes -= std::exchange(body_bytes_, 0);
}

void Connection::begin_exchange(HttpRequest request, bool keep_alive) {
  keep_alive_ = keep_alive && !host_.draining;
  head_only_ = request.method == "HEAD";
  answer_status_ = 0;
  answer_bytes_ = 0;
  exchange_ = std::make_shared<ExchangeImpl>(this, std::move(request));
}

void Connection::call(const HttpHandlers::Handler& handler) {
  const auto exchange = exchange_;
  try {
    handler(exchange);
  } catch (const std::exception& e) {
    log::error("http: a handler failed: {}", e.what());
    exchange->reply({.status = 500, .body = host_.handlers.error_body(500, "internal error"), .close = true});
  }
}

void Connection::refuse(int status, std::string_view message) {
  ++host_.stats.refused;
  keep_alive_ = false;
  head_only_ = false;
  http_1_0_ = false;
  HttpReply reply{.status = status, .body = host_.handlers.error_body(status, message)};
  if (status == 503) reply.headers = {{"Retry-After", "1"}};
  send(head(reply, Framing::kLength, {}) + reply.body);
  if (host_.access_log) {
    const Notes none;
    host_.access_log({.client = client_, .status = status, .bytes = answer_bytes_, .notes = none});
  }
  close_when_sent();
}

void Connection::log_access(const ExchangeImpl& exchange, bool cut_off) {
  if (!host_.access_log) return;
  const HttpRequest& request = exchange.request();
  host_.access_log({.client = client_,
                    .method = request.method,
                    .path = request.path,
                    .request_id = exchange.added_header("X-Request-Id"),
                    .status = answer_status_,
                    .bytes = answer_bytes_,
                    .seconds = std::chrono::duration<double>(Clock::now() - exchange.begin).count(),
                    .cut_off = cut_off,
                    .notes = exchange.notes});
}

void Connection::end_exchange() {
  const auto self = shared_from_this();
  log_access(*exchange_, false);
  exchange_.reset();
  since_ = Clock::now();
  if (!keep_alive_ || host_.draining) return close_when_sent();
  if (parsing_) return;  // the loop goes on by itself
  feed({});
  wait_readable();
}

}  // namespace bz::server
