#include "engine/text_stream.h"

#include <algorithm>

#include "base/check.h"

namespace bz::engine {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) BZ_CHECK(!stop.empty());
}

void StopMatcher::push(std::string_view text, std::string& out) {
  if (matched_) return;
  if (stops_.empty()) {
    out += text;
    return;
  }
  pending_ += text;
  const size_t start = match_start();
  if (start != std::string::npos) {
    matched_ = true;
    out.append(pending_, 0, start);
    pending_.clear();
    return;
  }
  const size_t certain = pending_.size() - held_back();
  out.append(pending_, 0, certain);
  pending_.erase(0, certain);
}

void StopMatcher::flush(std::string& out) {
  out += pending_;
  pending_.clear();
}

// Where the stop string begins that ends first. Ordering by the end makes the answer independent of grouping: by the
// time a later end arrives, an earlier one would have stopped the text already.
size_t StopMatcher::match_start() const {
  size_t best_start = std::string::npos;
  size_t best_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t start = pending_.find(stop);
    if (start == std::string::npos) continue;
    const size_t end = start + stop.size();
    if (end < best_end || (end == best_end && start < best_start)) {
      best_start = start;
      best_end = end;
    }
  }
  return best_start;
}

// Length of the longest end of the pending text that begins a stop string.
size_t StopMatcher::held_back() const {
  const std::string_view pending = pending_;
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    const size_t most = std::min(stop.size() - 1, pending.size());
    for (size_t n = most; n > longest; --n) {
      if (pending.substr(pending.size() - n) == std::string_view(stop).substr(0, n)) longest = n;
    }
  }
  return longest;
}

void TextStream::push(std::span<const int32_t> tokens, std::string& out) {
  for (const int32_t id : tokens) {
    if (stopped()) return;
    if (unsearched_ > 0) {
      --unsearched_;
      out += decoder_.push(id);
    } else {
      matcher_.push(decoder_.push(id), out);
    }
  }
}

void TextStream::finish(std::string& out) {
  if (stopped()) return;
  matcher_.push(decoder_.flush(), out);
  if (!stopped()) matcher_.flush(out);
}

}  // namespace bz::engine
