//! Attributes of kernel parameters for positions and sizes (MSL specification, kernel function input attributes).

/// Most components of an attribute's type: 3 for grids, 1 for indices. `None` for other attributes.
pub(crate) fn dimensions(attribute: &str) -> Option<u32> {
    Some(match attribute {
        "thread_position_in_grid"
        | "thread_position_in_threadgroup"
        | "threadgroup_position_in_grid"
        | "threads_per_grid"
        | "threads_per_threadgroup"
        | "dispatch_threads_per_threadgroup"
        | "threadgroups_per_grid"
        | "grid_size"
        | "grid_origin" => 3,
        "thread_index_in_threadgroup"
        | "thread_index_in_simdgroup"
        | "thread_index_in_quadgroup"
        | "simdgroup_index_in_threadgroup"
        | "quadgroup_index_in_threadgroup"
        | "simdgroups_per_threadgroup"
        | "quadgroups_per_threadgroup"
        | "dispatch_simdgroups_per_threadgroup"
        | "dispatch_quadgroups_per_threadgroup"
        | "threads_per_simdgroup"
        | "thread_execution_width" => 1,
        _ => return None,
    })
}

/// Attributes of Metal that are not supported.
const UNSUPPORTED: [&str; 24] = [
    "texture",
    "sampler",
    "stage_in",
    "payload",
    "user",
    "raster_order_group",
    "imageblock_data",
    "alias_implicit_imageblock",
    "threadgroup_imageblock",
    "pixel_position_in_tile",
    "pixels_per_tile",
    "tile_index",
    "render_target_array_index",
    "viewport_array_index",
    "color",
    "sample_mask",
    "primitive_data",
    "object_data",
    "ray_data",
    "patch_id",
    "vertex_id",
    "instance_id",
    "amplification_id",
    "amplification_count",
];

/// Types of the library that are not supported, by the beginning of their names.
const OPAQUE_TYPES: [&str; 13] = [
    "texture",
    "depth",
    "sampler",
    "intersection_function_table",
    "acceleration_structure",
    "raytracing::",
    "imageblock",
    "command_buffer",
    "render_pipeline_state",
    "compute_pipeline_state",
    "tensor",
    "array<",
    "array_ref<",
];

/// Whether an attribute of Metal is not supported.
pub(crate) fn unsupported(attribute: &str) -> bool {
    UNSUPPORTED.contains(&attribute)
}

/// The type of the functions in a table of this type.
pub(crate) fn functions_of(table: &str) -> Option<&str> {
    table.strip_prefix("visible_function_table<")?.strip_suffix('>')
}

/// Whether a type of the library is not supported as a kernel's parameter.
pub(crate) fn is_opaque(of: &str) -> bool {
    OPAQUE_TYPES.iter().any(|prefix| of.starts_with(prefix))
}

/// Whether a type is an array of pointers, which Metal allows in argument buffers only: its compiler has "invalid type for input declaration
/// in a kernel function" (shader-slang/slang#4555, KhronosGroup/SPIRV-Cross#713).
pub(crate) fn is_array_of_buffers(of: &str) -> bool {
    (of.starts_with("array<") || of.starts_with("array_ref<")) && of.contains('*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attribute_has_its_definition_in_the_headers() {
        let header = include_str!("../../headers/elinvar_stdlib/entry.h");
        let mut defined = 0;
        for line in header.lines().filter_map(|l| l.strip_prefix("ELINVAR_ATTRIBUTE(")) {
            let name = line.split(',').next().unwrap();
            assert!(dimensions(name).is_some(), "{name}");
            defined += 1;
        }
        assert_eq!(defined, 20);
        assert!(dimensions("buffer").is_none() && unsupported("texture"));
    }
}
