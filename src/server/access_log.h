// The access log: one JSON object a line for every answer, and for every client that left before its answer ended.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "base/status.h"
#include "server/http.h"

namespace bz::server {

// {"ts":..,"id":..,"client":..,"method":..,"path":..,"status":..,"bytes":..,"ms":..,"cut_off":..} and the notes.
// seconds_since_1970: when the answer ended.
std::string access_line(const AccessRecord& record, double seconds_since_1970);

// A log that writes to a file, appending, or to standard output for "-". Each line is written at once.
Result<AccessLog> open_access_log(const std::string& path);

}  // namespace bz::server
