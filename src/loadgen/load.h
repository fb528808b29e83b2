// Load on an OpenAI server: streamed completions, a fixed number of them at a time, each timed event by event. Client
// and clock are one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "loadgen/http_stream.h"

namespace bz::loadgen {

struct Target {
  Endpoint endpoint;
  std::string api_key;
  std::string model;
  double timeout_seconds = 600;  // for one answer
};

struct Answer {
  int status = 0;
  std::string body;
};
// One plain request, waited for. body empty: a GET.
Result<Answer> ask(const Target& target, const std::string& path, const std::string& body);
// The first model that the server lists.
Result<std::string> first_model(const Target& target);

// What came of one streamed request. Times in seconds from the moment it was sent.
struct StreamResult {
  std::string error;  // empty: it went well
  double first_token = 0;
  double end = 0;
  std::vector<double> gaps;  // between events that brought text
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;  // the server's count; without one, the events that brought text
};

struct Progress {
  size_t done = 0;
  size_t running = 0;
  size_t total = 0;
  int64_t events = 0;
  double seconds = 0;
};

struct LoadResult {
  std::vector<StreamResult> streams;  // in order of their bodies
  double seconds = 0;                 // from the first request to the last answer
};
// Sends the bodies to /v1/completions, `concurrency` at a time. `progress`: called a few times a second.
Result<LoadResult> run_load(const Target& target, const std::vector<std::string>& bodies, int32_t concurrency,
                            const std::function<void(const Progress&)>& progress = {});

}  // namespace bz::loadgen
