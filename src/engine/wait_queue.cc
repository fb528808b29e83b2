#include "engine/wait_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace bz::engine {

void WaitQueue::add(StatePtr s) {
  s->order = ++last_order_;
  s->arrived_at = num_admissions_;
  waiting_.push_back(std::move(s));
}

void WaitQueue::put_back(StatePtr s) {
  s->order = --first_order_;
  s->resumed = true;
  waiting_.push_back(std::move(s));
}

bool WaitQueue::before(const RequestState& a, const RequestState& b) const {
  const auto rank = [this](const RequestState& s) {
    return std::tuple(level(s), !s.resumed, s.resumed ? 0 : s.client->served, s.order);
  };
  return rank(a) < rank(b);
}

RequestState& WaitQueue::next() const {
  BZ_CHECK(!waiting_.empty());
  return **std::min_element(waiting_.begin(), waiting_.end(),
                            [this](const StatePtr& a, const StatePtr& b) { return before(*a, *b); });
}

StatePtr WaitQueue::admit(const RequestState& s) {
  const auto at = std::find_if(waiting_.begin(), waiting_.end(), [&](const StatePtr& p) { return p.get() == &s; });
  BZ_CHECK(at != waiting_.end());
  StatePtr taken = std::move(*at);
  waiting_.erase(at);
  ++num_admissions_;
  return taken;
}

// Of the clients with a request in the engine; kNobody: there is none.
int64_t WaitQueue::least_served() const {
  int64_t least = kNobody;
  for (const auto& [name, client] : clients_) {
    if (client.requests > 0) least = std::min(least, client.served);
  }
  return least;
}

void WaitQueue::open(RequestState& s, const std::string& name) {
  const int64_t least = least_served();
  if (clients_.size() >= sweep_at_) {
    std::erase_if(clients_, [&](const auto& c) { return c.second.requests == 0 && c.second.served <= least; });
    sweep_at_ = 2 * clients_.size() + 64;
  }
  FairClient& client = clients_[name];
  if (client.requests++ == 0 && least != kNobody) client.served = std::max(client.served, least);
  s.client = &client;
}

void WaitQueue::close(RequestState& s) {
  --s.client->requests;
  s.client = nullptr;
}

}  // namespace bz::engine
