#include "cli/config_file.h"

#include <sstream>

#include "formats/text_file.h"

namespace bz::cli {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

void set_option(CLI::Option& option, const CLI::ConfigItem& item) {
  if (option.get_items_expected_max() == 0) {  // a flag
    option.add_result(option.get_flag_value(item.name, CLI::App().get_config_formatter()->to_flag(item)));
  } else {
    option.add_result(item.inputs);
  }
  option.run_callback();
}

}  // namespace

Status apply_config_file(CLI::App& command, const std::string& path) {
  auto text = formats::read_text_file(path, kMaxFileBytes);
  if (!text.ok()) return invalid_argument("--config {}", text.status().message());
  std::istringstream file(*text);
  try {
    for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(file)) {
      if (!item.parents.empty()) {
        return invalid_argument("--config {}: sections such as [{}] have no meaning here", path, item.parents.front());
      }
      CLI::Option* option = command.get_option_no_throw("--" + item.name);
      if (option == nullptr || item.name == "config" || item.name == "help") {
        return invalid_argument("--config {}: there is no option '{}'; see blockzero {} --help", path, item.name,
                                command.get_name());
      }
      if (option->count() == 0) set_option(*option, item);
    }
  } catch (const CLI::Error& e) {
    return invalid_argument("--config {}: {}", path, e.what());
  }
  return ok_status();
}

}  // namespace bz::cli
