/* Compiles compute shaders of SPIR-V by Mesa's compiler for Apple's G13 and prints what came of each: a line per file, the
 * numbers of the compiler's own statistics. Only the compiler's libraries are linked, no driver and no device.
 *
 * The passes are those of Mesa's Vulkan driver (hk_shader.c of Mesa 25.0), except for buffers: here the address of a buffer is
 * in uniform registers, as Metal passes it, and there are no bounds checks.
 */
#include "agx_compile.h"
#include "agx_compiler.h"
#include "compiler/nir/nir.h"
#include "compiler/nir/nir_builder.h"
#include "compiler/spirv/nir_spirv.h"
#include "compiler/spirv/spirv_info.h"
#include "glsl_types.h"
#include "util/u_debug.h"

#include <stdio.h>
#include <stdlib.h>

/* Uniform registers of 16 bits: the addresses of buffers, then constants. */
enum { BUFFERS = 32, CONSTANTS = 4 * BUFFERS, RESERVED = CONSTANTS + 128 };

static nir_def *
uniform(nir_builder *b, unsigned components, unsigned bits, unsigned base)
{
   return nir_load_preamble(b, components, bits, .base = base);
}

/* Replaces what a driver would answer: addresses of buffers, constants and sizes. */
static bool
lower_intrinsic(nir_builder *b, nir_intrinsic_instr *intrinsic, void *data)
{
   b->cursor = nir_before_instr(&intrinsic->instr);
   nir_def *value;
   switch (intrinsic->intrinsic) {
   case nir_intrinsic_load_vulkan_descriptor: {
      nir_intrinsic_instr *index = nir_src_as_intrinsic(intrinsic->src[0]);
      nir_def *address = uniform(b, 1, 64, 4 * nir_intrinsic_binding(index));
      value = nir_vec4(b, nir_unpack_64_2x32_split_x(b, address), nir_unpack_64_2x32_split_y(b, address),
                       nir_imm_int(b, -1), nir_imm_int(b, 0));
      break;
   }
   case nir_intrinsic_load_push_constant:
      value = uniform(b, intrinsic->def.num_components, intrinsic->def.bit_size,
                      CONSTANTS + (nir_intrinsic_base(intrinsic) + nir_src_as_uint(intrinsic->src[0])) / 2);
      break;
   case nir_intrinsic_load_num_workgroups:
   case nir_intrinsic_get_ssbo_size:
      value = uniform(b, intrinsic->def.num_components, 32, RESERVED - 8);
      break;
   case nir_intrinsic_load_global_constant_offset:
      value = nir_build_load_global_constant(
         b, intrinsic->def.num_components, intrinsic->def.bit_size,
         nir_iadd(b, intrinsic->src[0].ssa, nir_u2u64(b, intrinsic->src[1].ssa)),
         .align_mul = nir_intrinsic_align_mul(intrinsic), .align_offset = nir_intrinsic_align_offset(intrinsic),
         .access = nir_intrinsic_access(intrinsic));
      break;
   default:
      return false;
   }
   nir_def_replace(&intrinsic->def, value);
   return true;
}

static void
shared_layout(const struct glsl_type *type, unsigned *size, unsigned *align)
{
   *align = glsl_type_is_boolean(type) ? 4 : glsl_get_bit_size(type) / 8;
   *size = *align * glsl_get_vector_elements(type);
}

static nir_shader *
parse(const uint32_t *words, size_t count)
{
   struct spirv_capabilities capabilities;
   memset(&capabilities, true, sizeof capabilities);
   struct spirv_to_nir_options options = {
      .environment = NIR_SPIRV_VULKAN,
      .capabilities = &capabilities,
      .ssbo_addr_format = nir_address_format_64bit_global_32bit_offset,
      .ubo_addr_format = nir_address_format_64bit_global_32bit_offset,
      .phys_ssbo_addr_format = nir_address_format_64bit_global,
      .push_const_addr_format = nir_address_format_32bit_offset,
      .shared_addr_format = nir_address_format_32bit_offset,
      .min_ssbo_alignment = 32,
      .min_ubo_alignment = 32,
      .subgroup_size = SUBGROUP_SIZE_API_CONSTANT,
   };
   nir_shader *nir =
      spirv_to_nir(words, count, NULL, 0, MESA_SHADER_COMPUTE, "main", &options, &agx_nir_options);
   if (!nir)
      return NULL;
   NIR_PASS(_, nir, nir_lower_variable_initializers, nir_var_function_temp);
   NIR_PASS(_, nir, nir_lower_returns);
   NIR_PASS(_, nir, nir_inline_functions);
   NIR_PASS(_, nir, nir_copy_prop);
   NIR_PASS(_, nir, nir_opt_deref);
   nir_remove_non_entrypoints(nir);
   NIR_PASS(_, nir, nir_lower_variable_initializers, ~0);
   NIR_PASS(_, nir, nir_split_var_copies);
   NIR_PASS(_, nir, nir_split_per_member_structs);
   return nir;
}

/* hk_preprocess_nir */
static void
preprocess(nir_shader *nir)
{
   NIR_PASS(_, nir, nir_lower_global_vars_to_local);
   bool progress;
   do {
      progress = false;
      NIR_PASS(progress, nir, nir_lower_vars_to_ssa);
      NIR_PASS(progress, nir, nir_copy_prop);
      NIR_PASS(progress, nir, nir_opt_dce);
      NIR_PASS(progress, nir, nir_opt_constant_folding);
      NIR_PASS(progress, nir, nir_opt_loop);
      NIR_PASS(progress, nir, nir_opt_loop_unroll);
   } while (progress);
   NIR_PASS(_, nir, nir_lower_system_values);
   nir_shader_gather_info(nir, nir_shader_get_entrypoint(nir));
   NIR_PASS(_, nir, nir_lower_global_vars_to_local);
   NIR_PASS(_, nir, nir_split_var_copies);
   NIR_PASS(_, nir, nir_split_struct_vars, nir_var_function_temp);
   agx_preprocess_nir(nir, NULL);
   NIR_PASS(_, nir, nir_lower_load_const_to_scalar);
   NIR_PASS(_, nir, nir_lower_var_copies);
   nir_lower_compute_system_values_options options = {0};
   NIR_PASS(_, nir, nir_lower_compute_system_values, &options);
}

/* hk_lower_nir */
static void
lower(nir_shader *nir)
{
   NIR_PASS(_, nir, nir_opt_access, &(const nir_opt_access_options){.is_vulkan = true});
   NIR_PASS(_, nir, nir_lower_explicit_io, nir_var_mem_push_const, nir_address_format_32bit_offset);
   NIR_PASS(_, nir, nir_lower_memory_model);
   NIR_PASS(_, nir, nir_shader_intrinsics_pass, lower_intrinsic, nir_metadata_control_flow, NULL);
   NIR_PASS(_, nir, nir_lower_explicit_io, nir_var_mem_ssbo | nir_var_mem_ubo,
            nir_address_format_64bit_global_32bit_offset);
   bool progress;
   do {
      progress = false;
      NIR_PASS(progress, nir, nir_opt_constant_folding);
      NIR_PASS(progress, nir, nir_opt_algebraic);
      NIR_PASS(progress, nir, nir_copy_prop);
      NIR_PASS(progress, nir, nir_opt_dce);
   } while (progress);
   NIR_PASS(_, nir, nir_shader_intrinsics_pass, lower_intrinsic, nir_metadata_control_flow, NULL);
   nir->info.shared_size = 0;
   NIR_PASS(_, nir, nir_lower_vars_to_explicit_types, nir_var_mem_shared, shared_layout);
   NIR_PASS(_, nir, nir_lower_explicit_io, nir_var_mem_shared, nir_address_format_32bit_offset);
   agx_preprocess_nir(nir, NULL);
   NIR_PASS(_, nir, nir_opt_if, nir_opt_if_optimize_phi_true_false | nir_opt_if_avoid_64bit_phis);
}

/* Reads the compiler's own statistics of a shader. */
struct statistics {
   unsigned instructions, cycles, scratch, threads, stored, loaded;
};

static void
read_statistics(void *data, unsigned *id, enum util_debug_type type, const char *format, va_list arguments)
{
   struct statistics *it = data;
   char text[512];
   vsnprintf(text, sizeof text, format, arguments);
   int found = sscanf(text,
                      "%*s shader: %u inst, %u alu, %*u fscib, %*u ic, %*u bytes, %*u regs, %*u uniforms, %u scratch, "
                      "%u threads, %*u loops, %u:%u spills:fills",
                      &it->instructions, &it->cycles, &it->scratch, &it->threads, &it->stored, &it->loaded);
   if (found != 6) {
      fprintf(stderr, "unknown statistics: %s\n", text);
      exit(1);
   }
}

static uint32_t *
read_words(const char *path, size_t *count)
{
   FILE *file = fopen(path, "rb");
   if (!file)
      return NULL;
   fseek(file, 0, SEEK_END);
   *count = ftell(file) / 4;
   rewind(file);
   uint32_t *words = malloc(4 * *count);
   bool whole = fread(words, 4, *count, file) == *count;
   fclose(file);
   return whole ? words : NULL;
}

/* Compiles a file and prints its line: registers of 16 bits, threads, spilled values stored and loaded, bytes of scratch and of
 * workgroup memory, threads of a workgroup, instructions, and cycles of arithmetic if each instruction ran once.
 */
static bool
compile(const char *path)
{
   size_t count;
   uint32_t *words = read_words(path, &count);
   nir_shader *nir = words ? parse(words, count) : NULL;
   free(words);
   if (!nir)
      return false;
   preprocess(nir);
   lower(nir);
   struct agx_shader_key key = {
      .dev = {.needs_g13x_coherency = U_TRISTATE_NO, .soft_fault = true},
      .reserved_preamble = RESERVED,
      .has_scratch = true,
      .promote_constants = true,
   };
   struct statistics it = {0};
   struct util_debug_callback callback = {.debug_message = read_statistics, .data = &it};
   struct agx_shader_part part;
   agx_compile_shader_nir(nir, &key, &callback, &part);
   const uint16_t *workgroup = part.info.workgroup_size;
   printf("%s\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%u\n", path, part.info.nr_gprs, it.threads, it.stored, it.loaded,
          it.scratch, part.info.local_size, workgroup[0] * workgroup[1] * workgroup[2], it.instructions, it.cycles);
   free(part.binary);
   ralloc_free(nir);
   return true;
}

int
main(int count, char **paths)
{
   glsl_type_singleton_init_or_ref();
   int failed = 0;
   for (int i = 1; i < count; i++) {
      if (!compile(paths[i])) {
         fprintf(stderr, "cannot compile %s\n", paths[i]);
         failed = 1;
      }
   }
   return failed;
}
