// HTTP with plain types: what a route sees of a request, and how it answers. No network header comes with this file.
//
// Thread rule: everything here is called on the server's one IO thread, except HttpServer::post, ::begin_drain and
// ::port.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace bz::server {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // as sent: "GET"
  std::string path;    // the target up to '?', without a scheme and host before it
  std::string query;   // after '?'
  HeaderList headers;  // names in lower case
  std::string body;

  // The value of the first header of that (lower-case) name, or an empty view.
  std::string_view header(std::string_view lower_name) const;
};

struct HttpReply {
  int status = 200;
  std::string_view content_type = "application/json";  // of static storage
  std::string body;
  HeaderList headers;  // besides Content-Type, Content-Length and Connection
  bool close = false;  // end the connection after this answer
};

// Numbers about a request, for the access log. Names are of static storage.
using Notes = std::vector<std::pair<std::string_view, int64_t>>;

// One answer that ended, or whose client left before. Valid during the call.
struct AccessRecord {
  std::string_view client;                    // its address
  std::string_view method, path, request_id;  // empty of what was no HTTP
  int status = 0;                             // 0: the client left before any of the answer
  int64_t bytes = 0;                          // of the answer, header included
  double seconds = 0;                         // from the whole request to the end of its answer
  bool cut_off = false;                       // the client left before the end
  const Notes& notes;
};
using AccessLog = std::function<void(const AccessRecord&)>;

// One request and its one answer. Calls after the client left or after the answer ended do nothing, so an owner never
// needs to ask first.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  // Moves the body out, so that it does not live as long as its answer.
  virtual std::string take_body() = 0;

  // A header for whichever answer comes. REQUIRES: before it; no line breaks in `value`.
  virtual void add_header(std::string name, std::string value) = 0;

  // A number for the access log. Before the answer ends, or from the callback that says that the client left.
  virtual void note(std::string_view name, int64_t value) = 0;

  // The whole answer at once.
  virtual void reply(HttpReply reply) = 0;

  // Or a stream: start_stream, any number of write, finish. `reply.body` is not used.
  virtual void start_stream(const HttpReply& reply) = 0;
  virtual void write(std::string_view bytes) = 0;
  virtual void finish() = 0;

  // True if the socket took everything written so far. A stream writes only then, and else waits for `on_writable`,
  // collecting what comes meanwhile: so a slow reader costs its text once, not a queue of events.
  virtual bool writable() const = 0;
  // False once the answer ended or the client left.
  virtual bool connected() const = 0;
  // The callbacks are dropped when the exchange ends, so they may own their stream. `on_closed`: the client left before
  // the answer ended. Called once, if at all.
  virtual void watch(std::function<void()> on_writable, std::function<void()> on_closed) = 0;
};

// A body up to this is read and worked on whatever others send; the number of connections bounds how many there are.
inline constexpr int64_t kSmallBodyBytes = 64 << 10;

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;                      // 0: any free port
  int64_t max_header_bytes = 32 << 10;       // 431 above
  int64_t max_body_bytes = 8 << 20;          // 413 above
  int64_t max_total_body_bytes = 256 << 20;  // of all that are read, and of all that wait for the worker: 503
  int send_buffer_bytes = 128 << 10;  // of the kernel, per connection: it would grow to megabytes for a slow reader
  int max_connections = 2048;         // 503 above
  std::chrono::milliseconds read_timeout{30'000};   // a whole request from its first byte: 408
  std::chrono::milliseconds idle_timeout{75'000};   // between requests: closed
  std::chrono::milliseconds write_timeout{30'000};  // a reader that takes nothing: closed
  std::chrono::milliseconds linger_timeout{3'000};  // reading off what a refused client still sends
  bool handle_signals = false;                      // SIGTERM, SIGINT: drain; a second one: stop at once
  std::chrono::milliseconds drain_timeout{30'000};
};

enum class HttpOutcome {
  kDrained,  // every answer was given
  kCutOff,   // the drain's deadline passed; what still ran was closed
  kSecondSignal,
};

struct HttpStats {
  int64_t connections = 0;
  int64_t requests = 0;
  int64_t refused = 0;  // broken HTTP, limits, time-outs
};

// What the HTTP layer asks of its owner.
struct HttpHandlers {
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;
  // A request's header came, its body is not read yet. Answers if the body is not worth reading, and else does nothing:
  // `request` gets an exchange of its own. Not asked about a request without a body.
  Handler head;
  // A whole request: answers, now or later.
  Handler request;
  // The body of an answer that the HTTP layer gives by itself (400, 408, 413, 431, 503).
  std::function<std::string(int status, std::string_view message)> error_body;
};

// Accepts connections and hands each request to the handlers. HTTP/1.0 and 1.1, keep-alive, pipelining (one request of
// a connection at a time), chunked bodies, Expect: 100-continue, HEAD.
class HttpServer {
 public:
  // Binds and listens, so that a taken port is known before a model is loaded.
  // Errors: kInvalidArgument with the parameter, host or port; the message says what to change.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpOptions& options, HttpHandlers handlers);
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;
  // Serves until a drain ended. Called once, by the thread that becomes the IO thread.
  virtual HttpOutcome run() = 0;
  // Runs `task` on the IO thread, soon. Any thread.
  virtual void post(std::function<void()> task) = 0;
  // Calls `tick` about every `period` on the IO thread. REQUIRES: before run().
  virtual void every(std::chrono::milliseconds period, std::function<void()> tick) = 0;
  // Stops accepting, closes idle connections, lets running answers end, then ends run(). Any thread; idempotent.
  virtual void begin_drain(std::chrono::milliseconds timeout) = 0;
  // Called on the IO thread for every answer. REQUIRES: before run().
  virtual void log_accesses(AccessLog log) = 0;
  virtual bool draining() const = 0;
  virtual HttpStats stats() const = 0;
};

// "a%2Fb" -> "a/b"; what is no escape stays as it is.
std::string percent_decoded(std::string_view text);

// "Not Found" for 404.
std::string_view reason_phrase(int status);

}  // namespace bz::server
