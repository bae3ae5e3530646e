#include "train/logs/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

#include "data/files/files.h"

namespace clover::train {
namespace {

/// Adds to `time` what the line of a step or an evaluation says that it took.
void add_time(const nlohmann::json& line, LoggedTime& time) {
  const nlohmann::json seconds = line.value("seconds", nlohmann::json());
  if (!seconds.is_number() || seconds < 0 || seconds > 1e12) return;
  (line.contains("evaluation") ? time.evaluations : time.steps) += seconds.get<double>();
}

/// The lines of `log` that are complete and belong to steps up to `last_step`; `removed`: the time of the
/// others.
std::string lines_up_to(const std::string& log, int64_t last_step, LoggedTime& removed) {
  std::string kept_lines;
  for (size_t begin = 0; begin < log.size();) {
    const size_t end = log.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string text = log.substr(begin, end - begin + 1);
    const auto line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (line.is_object() && line.contains("step") && line["step"].is_number_integer()) {
      if (line["step"] <= last_step)
        kept_lines += text;
      else
        add_time(line, removed);
    }
    begin = end + 1;
  }
  return kept_lines;
}

}  // namespace

Log::Log(const std::filesystem::path& file, int64_t resume_step) : name_(file.string()) {
  std::string kept_lines;
  if (std::filesystem::exists(file)) kept_lines = lines_up_to(data::read_file(file), resume_step, removed_);
  data::write_file_atomically(file, kept_lines);
  descriptor_ = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) throw std::runtime_error(name_ + " cannot be opened: " + std::strerror(errno));
}

Log::~Log() {
  ::close(descriptor_);
}

void Log::write(const nlohmann::json& line) {
  const std::string text = line.dump() + "\n";
  for (size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(descriptor_, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw std::runtime_error(name_ + " cannot be written: " + std::strerror(errno));
    written += static_cast<size_t>(count);
  }
}

}  // namespace clover::train
