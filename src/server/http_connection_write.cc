// Connection: what it writes, and how it closes without losing it.
#include "server/http_connection.h"

#include <boost/asio/post.hpp>

#include "server/http_exchange.h"

namespace bz::server {

namespace asio = boost::asio;
using boost::system::error_code;

std::string Connection::head(const HttpReply& reply, Framing framing, const HeaderList& more) {
  answer_status_ = reply.status;
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nServer: blockzero\r\nDate: {}\r\n", reply.status,
                                reason_phrase(reply.status), host_.date);
  const auto to = std::back_inserter(out);
  if (!reply.content_type.empty()) fmt::format_to(to, "Content-Type: {}\r\n", reply.content_type);
  if (framing == Framing::kChunked) out += "Transfer-Encoding: chunked\r\n";
  if (framing == Framing::kLength && reply.status != 204) {
    fmt::format_to(to, "Content-Length: {}\r\n", reply.body.size());
  }
  for (const HeaderList* list : {&reply.headers, &more}) {
    for (const auto& [name, value] : *list) fmt::format_to(to, "{}: {}\r\n", name, value);
  }
  if (!keep_alive_ || host_.draining) {
    out += "Connection: close\r\n";
  } else if (http_1_0_) {
    out += "Connection: keep-alive\r\n";
  }
  out += "\r\n";
  return out;
}

void Connection::send(std::string_view bytes) {
  if (closed_) return;
  answer_bytes_ += static_cast<int64_t>(bytes.size());
  if (output_.empty()) {
    error_code ec;
    const size_t n = socket_.send(asio::buffer(bytes.data(), bytes.size()), 0, ec);
    if (ec && ec != asio::error::would_block) return fail_soon();
    bytes.remove_prefix(n);
    if (bytes.empty()) return;
    since_ = Clock::now();
  }
  output_ += bytes;
  wait_writable();
}

void Connection::wait_writable() {
  if (closed_ || waiting_writable_) return;
  waiting_writable_ = true;
  socket_.async_wait(asio::socket_base::wait_write, [self = shared_from_this()](error_code ec) {
    self->waiting_writable_ = false;
    if (!ec) self->on_writable();
  });
}

void Connection::on_writable() {
  if (closed_) return;
  error_code ec;
  const size_t n = socket_.send(asio::buffer(output_.data(), output_.size()), 0, ec);
  if (ec && ec != asio::error::would_block) return abort();
  if (n > 0) since_ = Clock::now();
  output_.erase(0, n);
  if (!output_.empty()) return wait_writable();
  if (closing_) return close_when_sent();
  if (exchange_) {
    const auto exchange = exchange_;
    exchange->socket_writable();
  } else {
    feed({});
    wait_readable();
  }
}

// A write failed in the middle of a caller's work: tell it later, not from inside its own call.
void Connection::fail_soon() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->abort(); });
}

void Connection::close_when_sent() {
  closing_ = true;
  if (closed_ || !output_.empty()) return;
  // A request that was read to its end leaves nothing behind. After a refusal the client may still be sending:
  // closing now would reset the connection and lose the answer.
  if (parser_.state() == RequestParser::State::kStart && !parser_.dropping()) return close();
  error_code ec;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ec);
  discarding_ = true;
  since_ = Clock::now();
  wait_readable();
}

}  // namespace bz::server
