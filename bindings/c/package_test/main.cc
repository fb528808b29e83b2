// The C++ headers as they are installed: a layout, a manager, one request.
#include <cstdio>

#include "kv/cache_manager.h"
#include "kv/integrity.h"
#include "kv/layout.h"

int main() {
  namespace kv = bz::kv;
  const kv::LayoutRequest request{{kv::attention_layer(0, 8, 128, bz::DType::kBF16)}, 64 << 20};
  const kv::Layout layout = kv::make_layout(request).value();
  kv::CacheManager cache(kv::make_cache_config(layout, 3, 1024));
  cache.append(cache.admit(), 100);
  std::printf("%d blocks in use, %zu broken invariants\n", cache.num_used_blocks(), kv::check_integrity(cache).size());
  return 0;
}
