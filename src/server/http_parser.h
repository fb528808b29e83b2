// RequestParser: bytes of one connection -> requests, one after the other. Hides Boost.Beast, whose headers are slow to
// compile, from everything else.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "server/http.h"

namespace bz::server {

class RequestParser {
 public:
  enum class State {
    kStart,     // no byte of the next request yet
    kHeader,    // inside the header
    kBody,      // the header is complete: head() is valid
    kComplete,  // take() it
    kBad,       // error_status() and error_message() say why; the connection cannot go on
  };

  RequestParser(int64_t max_header_bytes, int64_t max_body_bytes);
  ~RequestParser();

  // Consumes from the front of `bytes` and returns how many; stops after a header and after a request. Bytes not
  // consumed come again, with more behind them.
  size_t feed(std::string_view bytes);
  State state() const { return state_; }

  // In kBody and kComplete:
  bool keep_alive() const;
  bool http_1_0() const;
  std::string expect() const;
  int64_t content_length() const;  // -1: chunked
  HttpRequest head() const;        // without a body

  // The request; the parser starts over. REQUIRES: kComplete
  HttpRequest take();
  // Gives up the request whose header came: its body is consumed as it comes, none of it is kept, and the parser starts
  // over. REQUIRES: kBody, a known length, nothing read of the body
  void drop_body();
  bool dropping() const { return drop_bytes_ > 0; }

  int error_status() const { return error_status_; }
  const std::string& error_message() const { return error_message_; }

 private:
  struct Impl;
  void restart();
  void fail(int status, std::string message);

  int64_t max_header_bytes_;
  int64_t max_body_bytes_;
  int64_t header_bytes_ = 0;  // consumed of the header
  int64_t drop_bytes_ = 0;    // still to come of a body that nobody wants
  State state_ = State::kStart;
  int error_status_ = 0;
  std::string error_message_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bz::server
