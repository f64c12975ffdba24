#include "strake/cli/flags_of_others.h"

#include <algorithm>
#include <array>
#include <utility>

namespace strake::cli {
namespace {

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
constexpr const char* kAllMetrics = "all metrics of the task are computed, over all rows; leave it out";
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
    {"--optim_target_modules", kNotThere},
    {"--torch_compile_backend", kOfPyTorch},
    {"--torch_compile_mode", kOfPyTorch},
    {"--torch_empty_cache_steps", kOfPyTorch},
    {"--torchdynamo", kOfPyTorch},
    {"--ray_scope", kOfPyTorch},
    {"--dispatch_batches", kOfPyTorch},
    {"--split_batches", kOfPyTorch},
    {"--use_ipex", kOwnKernels},
    {"--half_precision_backend", kPrecision},
    {"--fp16_backend", kPrecision},
    {"--fp16_opt_level", kPrecision},
    {"--parallelism_config", kOfPyTorch},
    {"--dataloader_multiprocessing_context", kOfPyTorch},
    {"--dataloader_in_order", kOfPyTorch},
    {"--ddp_static_graph", kOfPyTorch},
    {"--debug", kOfPyTorch},
    {"--use_cache", "training keeps no keys and values for generating text; leave it out"},
    {"--skip_memory_metrics", "the peak of memory is in the closing summary; leave it out"},
    {"--log_on_each_node", "rank 0 logs for all; leave it out"},
    {"--log_level_replica", "rank 0 logs for all; leave it out"},
    {"--trackio_space_id", kNothingUploaded},
    {"--trackio_bucket_id", kNothingUploaded},
    {"--trackio_static_space_id", kNothingUploaded},
    {"--hub_private_repo", kNothingUploaded},
    {"--hub_strategy", kNothingUploaded},
    {"--hub_always_push", kNothingUploaded},
    {"--hub_revision", kNothingUploaded},
    {"--push_to_hub_model_id", kNothingUploaded},
    {"--push_to_hub_organization", kNothingUploaded},
    {"--push_to_hub_token", kNothingUploaded},
    {"--use_auth_token", kNoDownloadedModel},
    {"--prediction_loss_only", kAllMetrics},
    {"--include_for_metrics", kAllMetrics},
    {"--include_inputs_for_metrics", kAllMetrics},
    {"--batch_eval_metrics", kAllMetrics},
    {"--return_entity_level_metrics", kAllMetrics},
    {"--eval_do_concat_batches", kAllMetrics},
    {"--eval_use_gather_object", kAllMetrics},
    {"--restore_callback_states_from_checkpoint", "a resumed run goes on with all of its state; leave it out"},
    {"--adafactor", "optimizers are named by --optim, and this one is not there"},
    {"--sharded_ddp", "it is called --fsdp now"},
    {"--zero_stage", "it is in the file of --deepspeed: \"zero_optimization\": {\"stage\": 2}"},
    {"--tpu_num_cores", kOnTheProcessor},
    {"--past_index", kNotThere},
    {"--fim_rate", kNotThere},
    {"--text_column_delimiter", "one column is read, and a second one by --text_pair_column"},
    {"--train_split_name", kNoDownload},
    {"--validation_split_name", kNoDownload},
    {"--test_split_name", kNoDownload},
    {"--remove_splits", kNoDownload},
    {"--remove_columns", "columns that no flag names are not read; leave it out"},
    {"--shuffle_seed", "training data is shuffled by --seed, anew in every epoch"},
    {"--text_column_name", "it is called --text_column here"},
    {"--answer_column", "it is called --answers_column here"},
    {"--null_score_diff_threshold", "an answer and none are compared by their scores; leave it out"},
    {"--line_by_line", "each row, or line of a text file, is a text of its own anyway; leave it out"},
});

}  // namespace

std::optional<std::string_view> hint_for(std::string_view flag) {
  const auto* const found =
      std::ranges::find(kKnownElsewhere, flag, &std::pair<std::string_view, std::string_view>::first);
  return found == kKnownElsewhere.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace strake::cli
