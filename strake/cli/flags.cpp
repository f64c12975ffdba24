#include "strake/cli/flags.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <istream>
#include <iterator>
#include <map>
#include <ostream>
#include <utility>

#include "strake/cli/flag_file.h"
#include "strake/core/error.h"
#include "strake/core/nearest_name.h"

namespace strake::cli {
namespace {

// Flags people bring along from Transformers' scripts, and what to do instead.
constexpr const char* kNeverPads = "strake never pads; leave it out";
constexpr const char* kOnAllCores = "text is tokenized on all cores; leave it out";
constexpr const char* kNothingUploaded = "nothing is uploaded; leave it out";
constexpr const char* kOnTheProcessor = "strake trains on the processor unless told --device cuda; leave it out";
constexpr const char* kNoDownload = "nothing is downloaded; give a file: --train_file";
constexpr const char* kNoDownloadedModel = "no model is downloaded and no code of one is run; leave it out";
constexpr const char* kRowsOfFile = "all rows of a file are used; give a file of those that you want";
constexpr const char* kNoTracker = "logs and metrics are written into --output_dir; leave it out";
constexpr const char* kOfPyTorch = "it is about PyTorch, which does not run here; leave it out";
constexpr const char* kPrecision = "the computation is in fp32 unless told --bf16 or --fp16; leave it out";
constexpr const char* kOwnKernels = "kernels are chosen for the processor or the GPU; leave it out";
constexpr const char* kEveryBlock = "every block is computed again, as a whole; leave it out";
constexpr const char* kEveryLayer = "every layer is a block of its own; leave it out";
constexpr const char* kNotThere = "strake does not have this; leave it out";
constexpr const char* kRanks = "ranks are --ranks, or processes of mpirun or torchrun; leave it out";
constexpr const char* kLauncher = "mpirun, srun and torchrun start ranks on several machines; leave it out";
constexpr auto kKnownElsewhere = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"--do_train", "strake train always trains; leave it out"},
    {"--do_eval", "give a --validation_file and --eval_strategy epoch instead"},
    {"--do_predict", "use strake predict"},
    {"--pad_to_max_length", kNeverPads},
    {"--group_by_length", "strake never pads, so grouping by length gains nothing; leave it out"},
    {"--train_sampling_strategy", "strake never pads, so grouping by length gains nothing; leave it out"},
    {"--length_column_name", kNeverPads},
    {"--evaluation_strategy", "Transformers renamed it: --eval_strategy"},
    {"--dataset_name", kNoDownload},
    {"--dataset_config_name", kNoDownload},
    {"--text_column_names", "it is called --text_column here (and --text_pair_column)"},
    {"--version_2_with_negative", "it is called --handle_impossible_answer here"},
    {"--max_answer_length", "it is called --max_answer_len here"},
    {"--n_best_size", "the best answers are asked for by --top_k"},
    {"--label_column_name", "it is called --label_column here"},
    {"--dataloader_num_workers", kOnAllCores},
    {"--preprocessing_num_workers", kOnAllCores},
    {"--dataloader_pin_memory", kOfPyTorch},
    {"--dataloader_prefetch_factor", kOfPyTorch},
    {"--dataloader_persistent_workers", kOfPyTorch},
    {"--torch_compile", kOfPyTorch},
    {"--torch_dtype", kPrecision},
    {"--low_cpu_mem_usage", "weights are read one block at a time; leave it out"},
    {"--push_to_hub", kNothingUploaded},
    {"--hub_model_id", kNothingUploaded},
    {"--hub_token", kNothingUploaded},
    {"--token", kNoDownloadedModel},
    {"--cache_dir", kNoDownloadedModel},
    {"--model_revision", kNoDownloadedModel},
    {"--trust_remote_code", kNoDownloadedModel},
    {"--use_fast_tokenizer", "there is one tokenizer, with the ids of both; leave it out"},
    {"--use_cpu", kOnTheProcessor},
    {"--no_cuda", kOnTheProcessor},
    {"--local_rank", kRanks},
    {"--max_eval_samples", kRowsOfFile},
    {"--max_predict_samples", kRowsOfFile},
    {"--overwrite_cache", "nothing is cached; leave it out"},
    {"--streaming", "leave it out, or prepare the data once: strake prepare"},
    {"--keep_linebreaks", "a line of a text file is a document, without its line break; leave it out"},
    {"--save_only_model", "checkpoints hold what resuming needs; leave it out"},
    {"--save_safetensors", "all weights are safetensors; leave it out"},
    {"--run_name", kNoTracker},
    {"--project", kNoTracker},
    {"--eval_accumulation_steps",
     "an evaluation keeps a number a label of each row, or sums of a language model; leave it out"},
    {"--tf32", kOfPyTorch},
    {"--ddp_backend", "ranks find their way by themselves: threads, MPI or NCCL; leave it out"},
    {"--ddp_find_unused_parameters", kOfPyTorch},
    {"--ddp_bucket_cap_mb", kOfPyTorch},
    {"--ddp_broadcast_buffers", kOfPyTorch},
    {"--accelerator_config", kOfPyTorch},
    {"--jit_mode_eval", kOfPyTorch},
    {"--use_mps_device", kOnTheProcessor},
    {"--bf16_full_eval", "an evaluation is in the precision of the training; leave it out"},
    {"--fp16_full_eval", "an evaluation is in the precision of the training; leave it out"},
    {"--save_on_each_node", "all ranks write into one folder on a disk that they share; leave it out"},
    {"--ignore_data_skip", "a resumed run goes on at once with the data that comes next; leave it out"},
    {"--local-rank", kRanks},
    {"--deepspeed_config", "it is called --deepspeed here"},
    {"--num_gpus", kRanks},
    {"--num_processes", kRanks},
    {"--nproc_per_node", kRanks},
    {"--nproc-per-node", kRanks},
    {"--num_nodes", kLauncher},
    {"--nnodes", kLauncher},
    {"--hostfile", kLauncher},
    {"--include", kLauncher},
    {"--exclude", kLauncher},
    {"--master_addr", kLauncher},
    {"--master_port", kLauncher},
    {"--launcher", kLauncher},
    {"--bind_cores_to_rank", "ranks keep to the cores that the launcher gives them; leave it out"},
    {"--fsdp_min_num_params", kEveryLayer},
    {"--fsdp_transformer_layer_cls_to_wrap", kEveryLayer},
    {"--neftune_noise_alpha", kNotThere},
    {"--auto_find_batch_size", "strake estimate tells which batch fits; leave it out"},
    {"--remove_unused_columns", "columns that no flag names are not read; leave it out"},
    {"--shuffle_train_dataset", "training data is shuffled anew in every epoch; leave it out"},
    {"--metric_name", "all metrics of the task are computed; one for the best model is --metric_for_best_model"},
    {"--task_name", kNoDownload},
    {"--test_file", "use strake predict, or strake evaluate where labels are there"},
    {"--do_regression", "it is called --problem_type regression here"},
    {"--logging_nan_inf_filter", "a loss that overflowed counts as the mean of those before it; leave it out"},
    {"--label_names", "labels are in the column --label_column; leave it out"},
    {"--include_num_input_tokens_seen", "trainer_state.json always has num_input_tokens_seen; leave it out"},
    {"--average_tokens_across_devices", "a step is the same on any number of ranks; leave it out"},
    {"--dtype", kPrecision},
    {"--attn_implementation", kOwnKernels},
    {"--use_liger_kernel", kOwnKernels},
    {"--liger_kernel_config", kOwnKernels},
    {"--activation_checkpointing_kwargs", kEveryBlock},
    {"--gradient_checkpointing_kwargs", kEveryBlock},
    {"--full_determinism", "every run is deterministic; leave it out"},
});

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

bool is_configuration(const std::string& path) {
  constexpr std::string_view kEndings[] = {".json", ".yaml", ".yml", ".toml"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) { return path.ends_with(ending); });
}

[[noreturn]] void refuse_unknown(const CLI::App& app, const std::string& argument) {
  const std::string flag = argument.substr(0, argument.find('='));
  for (const auto& [name, hint] : kKnownElsewhere) {
    if (flag == name) fail(ErrorKind::kUsage, "{}: {}", flag, hint);
  }
  if (!flag.starts_with("-")) {
    fail(ErrorKind::kUsage, "'{}' is not expected here; flags begin with --{}", printable(flag),
         is_configuration(flag) ? ", or are lines of a TOML file, key = value: --config run.toml" : "");
  }
  fail(ErrorKind::kUsage, "unknown flag {}{}", printable(flag), did_you_mean(flag, flag_names(app)));
}

// What HfArgumentParser takes, JSON and YAML, would get answers about lines of TOML.
void require_toml(const std::string& text, const std::string& file) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && text[first] == '{';
  require(!is_json && (!is_configuration(file) || file.ends_with(".toml")), ErrorKind::kUsage,
          "--config {}: a TOML file is expected, with lines of the form key = value, and this is {}", printable(file),
          is_json || file.ends_with(".json") ? "JSON" : "YAML");
}

// Of a device or a pipe as well, which may have no end.
std::string text_of(std::istream& input, const std::string& file) {
  std::string text(kMaxConfigBytes + 1, '\0');
  input.read(text.data(), static_cast<std::streamsize>(text.size()));
  require(!input.bad(), ErrorKind::kIo, "--config {}: cannot be read", printable(file));
  text.resize(static_cast<size_t>(input.gcount()));
  require(text.size() <= kMaxConfigBytes, ErrorKind::kUsage, "--config {}: more than {} bytes", printable(file),
          kMaxConfigBytes);
  return text;
}

// --config files hold flags by name and nothing else.
class FlagFile final : public CLI::ConfigTOML {
 public:
  explicit FlagFile(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    const auto file = app_.get_config_ptr()->as<std::string>();
    const std::string text = text_of(input, file);
    require_toml(text, file);
    std::map<const CLI::Option*, std::string> keys;
    std::vector<CLI::ConfigItem> items;
    for (const FlagSetting& setting : read_flag_file(text, file)) {
      const CLI::Option& option = option_of(setting, file);
      const auto [other, is_new] = keys.emplace(&option, setting.key);
      require(is_new, ErrorKind::kUsage, "{}:{}: key '{}' is there already, by its other name '{}'", file, setting.line,
              setting.key, other->second);
      require(setting.values.size() == 1 || option.get_items_expected_max() > 1, ErrorKind::kUsage,
              "{}:{}: --{} takes one value, and here are {}", file, setting.line, setting.key, setting.values.size());
      items.push_back({.parents = {}, .name = setting.key, .inputs = setting.values});
    }
    return items;
  }

 private:
  const CLI::Option& option_of(const FlagSetting& setting, const std::string& file) const {
    const CLI::Option* const option = app_.get_option_no_throw("--" + setting.key);
    if (option != nullptr) return *option;
    std::vector<std::string> keys = flag_names(app_);
    for (std::string& key : keys) key.erase(0, 2);
    fail(ErrorKind::kUsage, "{}:{}: unknown key '{}'{}", file, setting.line, printable(setting.key),
         did_you_mean(setting.key, keys));
  }

  const CLI::App& app_;
};

// To CLI11 "--flag=" is "--flag", which of a switch means true; it is what a script writes whose variable is not set.
void refuse_empty_switches(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("--") || !argument.ends_with('=')) continue;
    const std::string flag = argument.substr(0, argument.size() - 1);
    const CLI::Option* const option = app.get_option_no_throw(flag);
    const bool is_switch = option != nullptr && option->get_type_name() == kSwitchType;
    if (is_switch) fail(ErrorKind::kUsage, "{}= has no value behind the '='; expected true or false", flag);
  }
}

// Newer versions of Transformers recommend --fsdp alone, older ones had words behind it.
void complete_bare_fsdp(std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_alone = i + 1 == arguments.size() || arguments[i + 1].starts_with("--");
    if (arguments[i] == "--fsdp" && is_alone) arguments[i] += "=true";
  }
}

}  // namespace

bool parse_arguments(CLI::App& app, std::vector<std::string> arguments, std::ostream& out) {
  app.allow_extras();
  app.config_formatter(std::make_shared<FlagFile>(app));
  refuse_empty_switches(app, arguments);
  complete_bare_fsdp(arguments);
  // Of a flag that is there twice the last one holds, as for argparse: CLI11 then forgets the values it had.
  for (CLI::Option* option : app.get_options()) option->trigger_on_parse();
  std::ranges::reverse(arguments);  // CLI11 takes them from the back
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    out << app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    fail(ErrorKind::kUsage, "{}", error.what());
  }
  for (const std::string& extra : app.remaining()) refuse_unknown(app, extra);
  return true;
}

std::string switch_names(const std::string& name) {
  const std::string alias = name == "gradient_checkpointing" ? ",--activation_checkpointing" : "";
  return "--" + name + alias;
}

std::string check_number(const std::string& text) {
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  if (!text.empty() && end == text.c_str() + text.size()) return "";
  return fmt::format("'{}' is not a number", printable(text));
}

bool parse_bool(const std::string& text, const std::string& flag) {
  const std::string lower = lower_case(text);
  if (lower == "true" || lower == "1" || lower == "yes" || lower == "y" || lower == "t" || lower.empty()) return true;
  if (lower == "false" || lower == "0" || lower == "no" || lower == "n" || lower == "f") return false;
  fail(ErrorKind::kUsage, "{} {}: neither true nor false", flag, printable(text));
}

}  // namespace strake::cli
