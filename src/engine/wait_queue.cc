#include "engine/wait_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace bz::engine {

void WaitQueue::add(StatePtr s) {
  s->order = ++last_order_;
  s->arrived_at = num_admissions_;
  insert(std::move(s));
}

void WaitQueue::put_back(StatePtr s) {
  s->order = --first_order_;
  s->resumed = true;
  insert(std::move(s));
}

void WaitQueue::insert(StatePtr s) {
  Cohort& cohort = cohorts_[due_of(*s)];
  Line& line = cohort.lines[line_of(*s)];
  const bool is_first = line.requests.empty() || s->order < line.requests.begin()->first;
  if (is_first && !line.requests.empty()) cohort.turns.erase(turn_of(line));
  line.client = line_of(*s);
  const int64_t order = s->order;
  line.requests.emplace(order, std::move(s));
  ++size_;
  if (!is_first) return;
  line.served = served(line);
  cohort.turns.emplace(turn_of(line), &line);
}

// A turn whose client has been served since goes back to where it belongs now.
WaitQueue::Line& WaitQueue::first_line(Cohort& cohort) {
  for (;;) {
    const auto first = cohort.turns.begin();
    Line& line = *first->second;
    if (line.served == served(line)) return line;
    auto turn = cohort.turns.extract(first);
    line.served = served(line);
    turn.key() = turn_of(line);
    cohort.turns.insert(std::move(turn));
  }
}

RequestState& WaitQueue::next() {
  BZ_CHECK_GT(size_, 0u);
  // A level falls every kPatience admissions. Since that of the first due fell, so many have passed: who is due that
  // much later, or less, is of the same level.
  const int64_t first_due = cohorts_.begin()->first;
  const int64_t passed = (num_admissions_ - first_due) % kPatience;
  const int64_t last_due = first_due + (passed < 0 ? passed + kPatience : passed);
  const Line* best = nullptr;
  for (auto cohort = cohorts_.begin(); cohort != cohorts_.end() && cohort->first <= last_due; ++cohort) {
    const Line& line = first_line(cohort->second);
    if (best == nullptr || turn_of(line) < turn_of(*best)) best = &line;
  }
  BZ_CHECK(best != nullptr);  // the first due is of the first level
  return *best->requests.begin()->second;
}

StatePtr WaitQueue::admit(const RequestState& s) {
  ++num_admissions_;
  return take(s);
}

StatePtr WaitQueue::take(const RequestState& s) {
  const auto cohort = cohorts_.find(due_of(s));
  BZ_CHECK(cohort != cohorts_.end());
  auto& [lines, turns] = cohort->second;
  const auto line = lines.find(line_of(s));
  BZ_CHECK(line != lines.end());
  auto& requests = line->second.requests;
  const auto at = requests.find(s.order);
  BZ_CHECK(at != requests.end() && at->second.get() == &s);
  StatePtr taken = std::move(at->second);
  --size_;
  if (requests.size() > 1) {
    auto turn = turns.extract(turn_of(line->second));
    requests.erase(at);
    turn.key() = turn_of(line->second);
    turns.insert(std::move(turn));
    return taken;
  }
  turns.erase(turn_of(line->second));
  lines.erase(line);
  if (lines.empty()) cohorts_.erase(cohort);
  return taken;
}

// Of the clients with a request in the engine; kNobody: there is none.
int64_t WaitQueue::least_served() {
  while (!present_.empty()) {
    const auto first = present_.begin();
    FairClient& client = *first->second;
    if (client.listed == client.served) return client.served;
    auto entry = present_.extract(first);
    entry.value().first = client.listed = client.served;
    present_.insert(std::move(entry));
  }
  return kNobody;
}

void WaitQueue::open(RequestState& s, const std::string& name) {
  const int64_t least = least_served();
  if (clients_.size() >= sweep_at_) {
    const auto absent = [](const auto& c) { return c.second.requests == 0; };
    std::erase_if(clients_, [&](const auto& c) { return absent(c) && c.second.served <= least; });
    // Beside a queue that never empties the least served has always just come: every visitor has been served more.
    if (clients_.size() > present_.size() + kMaxAbsent) std::erase_if(clients_, absent);
    sweep_at_ = 2 * clients_.size() + 64;
  }
  FairClient& client = clients_[name];
  if (client.requests++ == 0) {
    if (least != kNobody) client.served = std::max(client.served, least);
    client.listed = client.served;
    present_.emplace(client.listed, &client);
  }
  s.client = &client;
}

void WaitQueue::close(RequestState& s) {
  FairClient& client = *std::exchange(s.client, nullptr);
  if (--client.requests == 0) present_.erase({client.listed, &client});
}

}  // namespace bz::engine
