#include "train/run/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

#include "data/files/files.h"

namespace clover::train {
namespace {

/// The leading lines that are complete and belong to steps up to `last`.
std::string lines_up_to(const std::string& text, int64_t last) {
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const auto line =
        nlohmann::json::parse(text.substr(begin, end - begin), nullptr, /*allow_exceptions=*/false);
    if (line.is_object() && line.contains("step") && line["step"].is_number_integer() &&
        line["step"] <= last) {
      kept += text.substr(begin, end - begin + 1);
    }
    begin = end + 1;
  }
  return kept;
}

}  // namespace

Log::Log(const std::filesystem::path& file, int64_t resume_step) : name_(file.string()) {
  std::string kept;
  if (resume_step >= 0 && std::filesystem::exists(file))
    kept = lines_up_to(data::read_file(file), resume_step);
  data::write_file_atomically(file, kept);
  descriptor_ = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) throw std::runtime_error(name_ + " cannot be opened: " + std::strerror(errno));
}

Log::~Log() {
  ::close(descriptor_);
}

void Log::write(const nlohmann::json& line) {
  const std::string text = line.dump() + "\n";
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(descriptor_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw std::runtime_error(name_ + " cannot be written: " + std::strerror(errno));
    done += static_cast<size_t>(count);
  }
}

}  // namespace clover::train
