// Values of the Jinja interpreter, and the heap that owns what they point to.
//
// A Value is small and copied freely. Everything it points to (string bytes, lists, dicts, ...) belongs to the Heap of
// one rendering, or to the template or input, and lives until the rendering ends. So cycles cannot leak, and the
// heap's byte budget bounds what a hostile template can make.
//
// Inside jinja/ errors are the exception Error, caught at ChatTemplate's edge; no other file sees it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace bz::formats::jinja {

struct Error {
  std::string message;
  int line = 0;         // 0: not known (yet)
  bool raised = false;  // by the template itself (raise_exception)
};
[[noreturn]] void fail(std::string message);

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,  // tuples too
  kDict,
  kNamespace,
  kLoop,
  kFunction,  // a global function
  kMacro,
  kMethod,  // a method of a value, not yet called
};

struct List;
struct Dict;
struct Namespace;
struct Loop;
struct Method;
struct Statement;
struct Macro;
enum class Function : uint8_t { kRange, kNamespace, kDict, kRaiseException, kStrftimeNow };

class Value {
 public:
  Value() = default;  // undefined, without a name
  static Value undefined(std::string_view name);
  static Value none();
  static Value boolean(bool b);
  static Value integer(int64_t i);
  static Value number(double d);
  static Value string(std::string_view s);  // does not copy the bytes
  static Value list(const List* l) { return pointer(Kind::kList, l); }
  static Value dict(const Dict* d) { return pointer(Kind::kDict, d); }
  static Value name_space(Namespace* n) { return pointer(Kind::kNamespace, n); }
  static Value loop(const Loop* l) { return pointer(Kind::kLoop, l); }
  static Value macro(const Macro* m) { return pointer(Kind::kMacro, m); }
  static Value method(const Method* m) { return pointer(Kind::kMethod, m); }
  static Value function(Function f);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return is(Kind::kInt) || is(Kind::kFloat) || is(Kind::kBool); }

  // REQUIRES: the kind. A bool counts as the integer 0 or 1, an integer as a float.
  bool as_bool() const { return data_.integer != 0; }
  int64_t as_int() const { return data_.integer; }
  double as_double() const { return is(Kind::kFloat) ? data_.number : static_cast<double>(data_.integer); }
  std::string_view as_string() const { return {data_.text, length_}; }  // of an undefined value: its name
  const List& as_list() const { return *static_cast<const List*>(data_.object); }
  const Dict& as_dict() const { return *static_cast<const Dict*>(data_.object); }
  Namespace& as_namespace() const { return *static_cast<Namespace*>(const_cast<void*>(data_.object)); }
  const Loop& as_loop() const { return *static_cast<const Loop*>(data_.object); }
  const Macro& as_macro() const { return *static_cast<const Macro*>(data_.object); }
  const Method& as_method() const { return *static_cast<const Method*>(data_.object); }
  Function as_function() const { return static_cast<Function>(data_.integer); }
  const void* address() const { return data_.object; }

 private:
  static Value pointer(Kind kind, const void* object);

  union {
    int64_t integer;
    double number;
    const char* text;
    const void* object;
  } data_ = {0};
  size_t length_ = 0;  // of a string
  Kind kind_ = Kind::kUndefined;
};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;  // shown with round brackets, and never equal to a list
};
struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in order of insertion
  // Keys are scalars (check_key). Both search from the front: callers count the steps.
  const Value* find(const Value& key) const;  // nullptr: absent
  const Value* find(std::string_view key) const { return find(Value::string(key)); }
  void set(const Value& key, const Value& value);
};
struct Namespace {
  Dict values;  // the keys' bytes belong to the template
};
struct Loop {
  const List* items = nullptr;
  size_t index = 0;  // from 0
};
struct Macro {
  const Statement* definition = nullptr;
};
struct Method {
  Value self;
  std::string_view name;
};

// Memory and work of one rendering.
class Heap {
 public:
  Heap(size_t max_bytes, int64_t max_steps) : bytes_left_(max_bytes), steps_left_(max_steps) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Takes bytes from the budget, before they are allocated. Throws Error when it is spent.
  void charge(size_t bytes);
  // Counts work: one step is about one node evaluated or one value looked at. Throws Error when all are taken.
  void step(size_t count = 1);
  Value keep(std::string text);
  // For lists and dicts: fill, then charge is by their items.
  List* new_list(size_t reserve = 0);
  Value keep_list(std::vector<Value> items, bool is_tuple = false);
  Dict* new_dict(size_t reserve = 0);
  Namespace* new_namespace();
  Loop* new_loop();
  Macro* new_macro();
  Value new_method(const Value& self, std::string_view name);

 private:
  size_t bytes_left_;
  int64_t steps_left_;
  std::deque<std::string> strings_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Namespace> namespaces_;
  std::deque<Loop> loops_;
  std::deque<Macro> macros_;
  std::deque<Method> methods_;
};

// Python's truth, equality, order, str(), repr() and type names. Nesting past a limit throws Error.
bool is_true(const Value& value);
bool equals(const Value& a, const Value& b, Heap& heap, int depth = 0);
int compare(const Value& a, const Value& b, Heap& heap, int depth = 0);  // -1, 0, 1; throws for kinds without an order
void check_key(const Value& key);  // throws unless it may be a dict's key: a scalar
void append_str(const Value& value, std::string& out);
void append_repr(const Value& value, std::string& out, int depth = 0);
std::string_view kind_name(const Value& value);

// json.dumps(value, ensure_ascii=False); indent < 0: on one line.
void append_json(const Value& value, int indent, bool sort_keys, std::string& out, int depth = 0);

// The value of an input; copies strings into the heap.
Value from_json(const nlohmann::ordered_json& json, Heap& heap, int depth = 0);

inline constexpr int kMaxValueDepth = 100;

}  // namespace bz::formats::jinja
