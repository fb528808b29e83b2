// The only file that includes Boost.Beast.
#include "server/http_parser.h"

#include <algorithm>
#include <optional>

// With sanitizers g++ 12 takes an empty boost::optional for one that is read.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

namespace bz::server {
namespace {

namespace http = boost::beast::http;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string to_string(boost::beast::string_view text) { return {text.data(), text.size()}; }

// "http://host/path" is a target as well (RFC 9112, 3.2.2): clients that take the server for a proxy send it.
std::string origin_form(const std::string& target) {
  const std::string scheme = lower(target.substr(0, target.find("://")));
  if (scheme != "http" && scheme != "https") return target;
  const std::string rest = target.substr(std::min(target.find_first_of("/?", scheme.size() + 3), target.size()));
  return rest.starts_with('/') ? rest : "/" + rest;
}

struct Refusal {
  int status;
  const char* message;
};

Refusal refusal_of(const boost::system::error_code& ec) {
  if (ec == http::error::header_limit) return {431, "the request header is too large"};
  if (ec == http::error::body_limit) return {413, "the request body is too large"};
  if (ec == http::error::bad_version) return {505, "only HTTP/1.0 and HTTP/1.1 are spoken here"};
  if (ec == http::error::bad_transfer_encoding)
    return {400, "bad Transfer-Encoding: only 'chunked', and not beside a Content-Length"};
  if (ec == http::error::bad_content_length) return {400, "bad Content-Length"};
  if (ec == http::error::bad_chunk || ec == http::error::bad_chunk_extension) return {400, "bad chunked encoding"};
  return {400, "the request is not valid HTTP"};
}

// Beast undoes 'chunked' and leaves other codings in the body ("gzip, chunked").
template <class Message>
bool only_chunked(const Message& message) {
  const auto [begin, end] = message.equal_range(http::field::transfer_encoding);
  return std::all_of(begin, end, [](const auto& field) { return lower(to_string(field.value())) == "chunked"; });
}

// All but the body.
template <class Message>
HttpRequest head_of(const Message& message) {
  HttpRequest request;
  request.method = to_string(message.method_string());
  const std::string target = origin_form(to_string(message.target()));
  const size_t question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string::npos) request.query = target.substr(question + 1);
  for (const auto& field : message.base()) {
    request.headers.emplace_back(lower(to_string(field.name_string())), to_string(field.value()));
  }
  return request;
}

}  // namespace

struct RequestParser::Impl {
  http::request_parser<http::string_body> parser;
};

RequestParser::RequestParser(int64_t max_header_bytes, int64_t max_body_bytes)
    : max_header_bytes_(max_header_bytes), max_body_bytes_(max_body_bytes) {
  restart();
}
RequestParser::~RequestParser() = default;

void RequestParser::restart() {
  impl_ = std::make_unique<Impl>();
  impl_->parser.header_limit(static_cast<std::uint32_t>(max_header_bytes_));
  impl_->parser.body_limit(static_cast<std::uint64_t>(max_body_bytes_));
  impl_->parser.eager(false);
  header_bytes_ = 0;
  state_ = State::kStart;
}

void RequestParser::fail(int status, std::string message) {
  state_ = State::kBad;
  error_status_ = status;
  error_message_ = std::move(message);
}

size_t RequestParser::feed(std::string_view bytes) {
  size_t consumed = std::min(bytes.size(), static_cast<size_t>(drop_bytes_));
  drop_bytes_ -= static_cast<int64_t>(consumed);
  if (state_ == State::kStart) {
    // Some clients end a body with a stray CRLF: skip it between requests (RFC 9112, 2.2).
    while (consumed < bytes.size() && (bytes[consumed] == '\r' || bytes[consumed] == '\n')) ++consumed;
    if (consumed == bytes.size()) return consumed;
    state_ = State::kHeader;
  }
  while (state_ == State::kHeader || state_ == State::kBody) {
    const std::string_view rest = bytes.substr(consumed);
    boost::system::error_code ec;
    const size_t n = impl_->parser.put(boost::asio::const_buffer(rest.data(), rest.size()), ec);
    consumed += n;
    if (ec == http::error::need_more) return consumed;
    if (ec) {
      const Refusal refusal = refusal_of(ec);
      fail(refusal.status, refusal.message);
      return consumed;
    }
    const bool was_header = state_ == State::kHeader;
    if (was_header) header_bytes_ += static_cast<int64_t>(n);
    // Beast holds a header that comes in one piece to a looser limit than one in several.
    if (header_bytes_ > max_header_bytes_) {
      const Refusal refusal = refusal_of(http::error::header_limit);
      fail(refusal.status, refusal.message);
      return consumed;
    }
    if (was_header && impl_->parser.is_header_done() && !only_chunked(impl_->parser.get())) {
      fail(501, "bad Transfer-Encoding: only 'chunked', nothing before it");
      return consumed;
    }
    if (impl_->parser.is_done()) {
      state_ = State::kComplete;
    } else if (impl_->parser.is_header_done()) {
      state_ = State::kBody;
    }
    if (was_header) return consumed;
    if (n == 0 && state_ == State::kBody) return consumed;
  }
  return consumed;
}

bool RequestParser::keep_alive() const { return impl_->parser.get().keep_alive(); }
bool RequestParser::http_1_0() const { return impl_->parser.get().version() < 11; }
std::string RequestParser::expect() const { return lower(to_string(impl_->parser.get()[http::field::expect])); }

int64_t RequestParser::content_length() const {
  if (impl_->parser.chunked()) return -1;
  const auto length = impl_->parser.content_length();
  return length ? static_cast<int64_t>(*length) : 0;
}

HttpRequest RequestParser::head() const {
  BZ_CHECK(state_ == State::kBody || state_ == State::kComplete);
  return head_of(impl_->parser.get());
}

void RequestParser::drop_body() {
  BZ_CHECK(state_ == State::kBody && content_length() >= 0);
  drop_bytes_ = content_length();
  restart();
}

HttpRequest RequestParser::take() {
  BZ_CHECK(state_ == State::kComplete);
  auto message = impl_->parser.release();
  HttpRequest request = head_of(message);
  request.body = std::move(message.body());
  restart();
  return request;
}

}  // namespace bz::server
