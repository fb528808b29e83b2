// Buffer: an owned piece of memory a device can read and write. Movable, not copyable; freed with its owner.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

namespace bz::device {

class Buffer {
 public:
  Buffer() = default;
  // host == nullptr: the host cannot read it directly. device: the address that ops use.
  Buffer(void* host, void* device, size_t bytes, std::function<void()> release)
      : host_(host), device_(device), bytes_(bytes), release_(std::move(release)) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (release_) release_();
  }

  size_t bytes() const { return bytes_; }
  template <class T = std::byte>
  T* device() const {
    return static_cast<T*>(device_);
  }
  // The same bytes as the host sees them; nullptr for memory of the device alone.
  template <class T = std::byte>
  T* host() const {
    return static_cast<T*>(host_);
  }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
  }
  void* host_ = nullptr;
  void* device_ = nullptr;
  size_t bytes_ = 0;
  std::function<void()> release_;
};

}  // namespace bz::device
