// The plot of a report: SVG by hand, three charts side by side, one point per level and series.
#include <algorithm>

#include "loadgen/report.h"

namespace bz::loadgen {
namespace {

constexpr double kWidth = 420, kHeight = 300, kLeft = 60, kRight = 12, kTop = 48, kBottom = 40;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string label(double x, double y, std::string_view text, std::string_view anchor = "middle", int size = 11) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"{}\" font-family=\"sans-serif\">{}</text>\n", x,
      y, size, anchor, escaped(text));
}

struct Series {
  std::string name, colour;
  std::vector<double> values;  // one a level
};

// A line and points per series over the levels, from zero to the largest value.
std::string chart(double left, std::string_view title, const std::vector<std::string>& names,
                  const std::vector<Series>& all) {
  double top = 0;
  for (const Series& s : all) top = std::max(top, *std::max_element(s.values.begin(), s.values.end()));
  if (top <= 0) top = 1;
  const double x0 = left + kLeft, y0 = kTop + kPlotHeight;
  const auto x_of = [&](size_t i) {
    return x0 + kPlotWidth * (static_cast<double>(i) + 0.5) / static_cast<double>(names.size());
  };
  const auto y_of = [&](double v) { return y0 - kPlotHeight * v / (top * 1.08); };
  std::string out = label(x0, 18, title, "start", 13);
  for (int i = 0; i <= 4; ++i) {
    const double v = top * i / 4;
    out += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", x0, y_of(v),
                       x0 + kPlotWidth, y_of(v));
    out += label(x0 - 6, y_of(v) + 4, fmt::format("{:.4g}", v), "end");
  }
  for (size_t i = 0; i < names.size(); ++i) out += label(x_of(i), y0 + 18, names[i]);
  double legend = x0;
  for (const Series& s : all) {
    std::string points;
    for (size_t i = 0; i < s.values.size(); ++i) {
      points += fmt::format("{:.1f},{:.1f} ", x_of(i), y_of(s.values[i]));
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", x_of(i), y_of(s.values[i]),
                         s.colour);
    }
    out +=
        fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n", points, s.colour);
    out += fmt::format("<rect x=\"{:.1f}\" y=\"28\" width=\"10\" height=\"10\" fill=\"{}\"/>\n", legend, s.colour);
    out += label(legend + 14, 37, s.name, "start");
    legend += 24 + 6.2 * static_cast<double>(s.name.size());
  }
  return out;
}

}  // namespace

std::string to_svg(const Report& r) {
  std::vector<std::string> names;
  Series rate{"output tok/s", "#2563a8", {}};
  Series ttft{"first token p50", "#2563a8", {}}, ttft99{"p99", "#9cc3ea", {}};
  Series itl{"between tokens p50", "#b4541a", {}}, itl99{"p99", "#f0b88f", {}};
  for (const Level& l : r.levels) {
    names.push_back(l.name);
    rate.values.push_back(l.output_rate());
    ttft.values.push_back(l.ttft.p50 * 1e3);
    ttft99.values.push_back(l.ttft.p99 * 1e3);
    itl.values.push_back(l.itl.p50 * 1e3);
    itl99.values.push_back(l.itl.p99 * 1e3);
  }
  std::string body = chart(0, fmt::format("{}: {} in, {} out, tokens/s", r.model, r.in_len, r.out_len), names, {rate});
  body += chart(kWidth, "to the first token, ms", names, {ttft, ttft99});
  body += chart(2 * kWidth, "between tokens, ms", names, {itl, itl99});
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{2}</svg>\n",
      3 * kWidth, kHeight, body);
}

}  // namespace bz::loadgen
