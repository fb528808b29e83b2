#include "loadgen/http_stream.h"

#include <algorithm>
#include <charconv>

namespace bz::loadgen {
namespace {

constexpr size_t kMaxHeader = 64 << 10;
constexpr size_t kMaxChunkLine = 1024;
constexpr int64_t kMaxChunk = int64_t{1} << 40;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// The value of a header line, lower case; empty: there is none.
std::string header_value(const std::string& lower_head, std::string_view name) {
  const size_t at = lower_head.find(fmt::format("\r\n{}:", name));
  if (at == std::string::npos) return {};
  size_t begin = at + name.size() + 3;
  while (begin < lower_head.size() && lower_head[begin] == ' ') ++begin;
  return lower_head.substr(begin, lower_head.find("\r\n", begin) - begin);
}

std::string request_head(std::string_view method, const Endpoint& to, std::string_view path, std::string_view api_key) {
  const bool ipv6 = to.host.find(':') != std::string::npos;
  const std::string host = ipv6 ? fmt::format("[{}]", to.host) : to.host;  // RFC 3986, 3.2.2
  std::string head = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\n", method, to.path, path, host, to.port);
  if (!api_key.empty()) head += fmt::format("Authorization: Bearer {}\r\n", api_key);
  return head;
}

}  // namespace

Result<Endpoint> parse_url(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) {
    return invalid_argument("--url {}: must begin with http:// (for https put a proxy in between)", url);
  }
  std::string_view rest = url.substr(kScheme.size());
  Endpoint to;
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  std::string_view path = rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);
  to.path = path;
  const size_t colon = authority.rfind(':');
  if (colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos) {
    to.port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) authority = authority.substr(1, authority.size() - 2);
  to.host = authority;
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(to.port.data(), to.port.data() + to.port.size(), port);
  if (to.host.empty() || error != std::errc() || end != to.port.data() + to.port.size() || port == 0) {
    return invalid_argument("--url {}: use http://HOST:PORT", url);
  }
  return to;
}

std::string post_head(const Endpoint& to, std::string_view path, std::string_view api_key, size_t body_bytes) {
  return request_head("POST", to, path, api_key) +
         fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body_bytes);
}

std::string get_head(const Endpoint& to, std::string_view path, std::string_view api_key) {
  return request_head("GET", to, path, api_key) + "\r\n";
}

bool ResponseReader::read_header() {
  const size_t end = pending_.find("\r\n\r\n");
  if (end == std::string::npos) {
    if (pending_.size() > kMaxHeader) state_ = State::kBad;
    return false;
  }
  const std::string head = lower(std::string_view(pending_).substr(0, end + 2));
  pending_.erase(0, end + 4);
  const auto digits = std::string_view(head).substr(std::min<size_t>(9, head.size())).substr(0, 3);
  const auto [digits_end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), status_);
  if (!head.starts_with("http/1.") || error != std::errc() || digits_end != digits.data() + 3) {
    state_ = State::kBad;
    return false;
  }
  if (status_ == 100) return true;  // the real answer follows
  keep_alive_ = header_value(head, "connection") != "close" && !head.starts_with("http/1.0");
  chunked_ = header_value(head, "transfer-encoding") == "chunked";
  const std::string length = header_value(head, "content-length");
  until_close_ = !chunked_ && length.empty();
  left_ = 0;
  if (!length.empty()) std::from_chars(length.data(), length.data() + length.size(), left_);
  if (left_ < 0) {
    state_ = State::kBad;
    return false;
  }
  state_ = !chunked_ && !until_close_ && left_ == 0 ? State::kDone : State::kBody;
  return true;
}

// The line before a chunk, or one behind the last chunk; false: more bytes are needed, or none.
bool ResponseReader::read_chunk_line() {
  const size_t end = pending_.find("\r\n");
  if (end == std::string::npos) {
    if (pending_.size() > kMaxChunkLine) state_ = State::kBad;
    return false;
  }
  if (in_trailer_) {  // fields that nobody reads, up to an empty line
    if (end == 0) state_ = State::kDone;
  } else {
    int64_t size = -1;
    std::from_chars(pending_.data(), pending_.data() + end, size, 16);
    if (size < 0 || size > kMaxChunk) {
      state_ = State::kBad;
      return false;
    }
    if (size > 0) left_ = size + 2;
    in_trailer_ = size == 0;
  }
  pending_.erase(0, end + 2);
  return state_ == State::kBody;
}

// One step through chunked data in pending_; false: more bytes are needed. left_: of the chunk, its line end included.
bool ResponseReader::read_chunk(std::string& body) {
  if (left_ == 0) return read_chunk_line();
  if (pending_.empty()) return false;
  const auto n = std::min<int64_t>(left_, static_cast<int64_t>(pending_.size()));
  const int64_t data = std::min(n, std::max<int64_t>(left_ - 2, 0));
  body.append(pending_, 0, static_cast<size_t>(data));
  pending_.erase(0, static_cast<size_t>(n));
  left_ -= n;
  return true;
}

void ResponseReader::feed(std::string_view bytes, std::string& body) {
  pending_.append(bytes);
  while (state_ == State::kHeader && read_header()) {
  }
  if (state_ != State::kBody) return;
  if (chunked_) {
    while (state_ == State::kBody && read_chunk(body)) {
    }
    return;
  }
  const size_t n = until_close_ ? pending_.size() : std::min(pending_.size(), static_cast<size_t>(left_));
  body.append(pending_, 0, n);
  pending_.erase(0, n);
  left_ -= static_cast<int64_t>(n);
  if (!until_close_ && left_ == 0) state_ = State::kDone;
}

void ResponseReader::end() {
  if (state_ == State::kDone) return;
  state_ = state_ == State::kBody && until_close_ ? State::kDone : State::kBad;
  keep_alive_ = false;
}

bool EventReader::next(std::string_view& data) {
  for (;;) {
    const size_t end = input_.find("\n\n", consumed_);
    if (end == std::string::npos) {
      input_.erase(0, consumed_);
      consumed_ = 0;
      return false;
    }
    const std::string_view event = std::string_view(input_).substr(consumed_, end - consumed_);
    consumed_ = end + 2;
    if (!event.starts_with("data:")) continue;  // a comment, to keep the connection alive
    data = event.substr(event.starts_with("data: ") ? 6 : 5);
    return true;
  }
}

}  // namespace bz::loadgen
