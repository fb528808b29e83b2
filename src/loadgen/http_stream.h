// The client's half of HTTP and of server-sent events: bytes of a socket -> status, body, events. No network in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace bz::loadgen {

// Where a server is: "http://HOST[:PORT][/PATH]". A trailing /v1 belongs to the requests' own paths and is dropped.
struct Endpoint {
  std::string host;  // of an IPv6 literal without its brackets, as the resolver wants it
  std::string port = "80";
  std::string path;  // before every request's own; no '/' at its end
};
Result<Endpoint> parse_url(std::string_view url);

std::string post_head(const Endpoint& to, std::string_view path, std::string_view api_key, size_t body_bytes);
std::string get_head(const Endpoint& to, std::string_view path, std::string_view api_key);

// Reads one answer: its header, then a body of a known length, in chunks, or up to the end of the connection.
class ResponseReader {
 public:
  enum class State { kHeader, kBody, kDone, kBad };

  // Appends what `bytes` hold of the body to `body`. Bytes after the answer's end are dropped: nothing was asked for.
  void feed(std::string_view bytes, std::string& body);
  // The server closed the connection.
  void end();

  State state() const { return state_; }
  int status() const { return status_; }
  bool keep_alive() const { return keep_alive_; }

 private:
  bool read_header();
  bool read_chunk(std::string& body);
  bool read_chunk_line();

  State state_ = State::kHeader;
  int status_ = 0;
  bool keep_alive_ = true;
  bool chunked_ = false;
  bool until_close_ = false;
  bool in_trailer_ = false;  // behind the last chunk
  int64_t left_ = 0;         // of the body, or of the chunk with its line end
  std::string pending_;      // of the header, or of a chunk's size line
};

// Splits a body into the data of its events. An event ends with an empty line.
class EventReader {
 public:
  // The next whole event's data, valid until the next call; false: there is none yet.
  bool next(std::string_view& data);
  // Where more of the body is appended.
  std::string& input() { return input_; }

 private:
  std::string input_;
  size_t consumed_ = 0;
};

}  // namespace bz::loadgen
