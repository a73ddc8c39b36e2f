//! WGSL, GLSL and SPIR-V to MSL, by naga: compute entry points become kernels.
//!
//! Buffers of all groups have indices in order of group and binding; the byte sizes of those that end in an array without a length are in a
//! buffer behind them. Accesses are checked as WGSL demands.

mod lines;
mod mend;
mod names;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use ::naga::back::pipeline_constants::{PipelineConstantError, process_overrides};
use ::naga::back::{PipelineConstants, msl};
use ::naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use ::naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use ::naga::{AddressSpace, GlobalVariable, Module, ShaderStage, TypeInner};
use elinvar_driver::{Diagnostic, Source};

use crate::{Argument, Error, Kernel, Result, Translation};

/// A language that naga reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// WebGPU Shading Language.
    Wgsl,
    /// GLSL 4.50, a compute shader.
    Glsl,
}

/// Most buffers of a kernel in Metal.
const MAX_BUFFERS: u8 = 31;

/// Translates a source of one file.
///
/// # Errors
/// `Compile` if the source is not valid, or has no compute entry point.
pub fn shader(source: &Source, language: Language) -> Result<Translation> {
    let (name, text) = source.files.first().map_or(("", ""), |file| (&file.name, &file.text));
    let invalid = |line: u32, column: u32, message: String| {
        let mut error = Diagnostic::error(name, line, column, message);
        error.source_line =
            (line > 0).then(|| text.lines().nth(line as usize - 1).map(str::to_owned)).flatten();
        Error::Compile(vec![error])
    };
    let module = match language {
        Language::Wgsl => ::naga::front::wgsl::parse_str(text).map_err(|error| {
            let at = error.location(text);
            invalid(
                at.map_or(0, |at| at.line_number),
                at.map_or(0, |at| at.line_position),
                error.message().to_owned(),
            )
        })?,
        Language::Glsl => {
            let mut options = ::naga::front::glsl::Options::from(ShaderStage::Compute);
            for (name, value) in &source.defines {
                options.defines.insert(name.clone(), value.clone().unwrap_or_else(|| "1".into()));
            }
            ::naga::front::glsl::Frontend::default().parse(&options, text).map_err(|all| {
                let errors = all.errors.iter().map(|error| {
                    let at = error.meta.location(text);
                    Diagnostic::error(name, at.line_number, at.line_position, error.kind.to_string())
                });
                Error::Compile(errors.collect())
            })?
        }
    };
    let info = Validator::new(ValidationFlags::all(), capabilities()).validate(&module).map_err(|error| {
        let at = error.location(text);
        let mut message = error.as_inner().to_string();
        let mut cause = std::error::Error::source(error.as_inner());
        while let Some(next) = cause {
            message.push_str(&format!(": {next}"));
            cause = next.source();
        }
        invalid(at.map_or(0, |at| at.line_number), at.map_or(0, |at| at.line_position), message)
    })?;
    write(module, &info, &source.defines, Some((name, text))).map_err(|message| invalid(0, 0, message))
}

/// Translates a SPIR-V module.
///
/// # Errors
/// As [`shader`].
pub fn spirv(name: &str, bytes: &[u8]) -> Result<Translation> {
    let invalid = |message: String| Error::Compile(vec![Diagnostic::error(name, 0, 0, message)]);
    let module = ::naga::front::spv::parse_u8_slice(bytes, &::naga::front::spv::Options::default());
    let module = module.map_err(|error| invalid(error.to_string()))?;
    let info = Validator::new(ValidationFlags::all(), capabilities()).validate(&module);
    let info = info.map_err(|error| invalid(error.as_inner().to_string()))?;
    write(module, &info, &[], None).map_err(invalid)
}

/// What a module may use: what Metal has for compute without textures.
fn capabilities() -> Capabilities {
    Capabilities::IMMEDIATES
        | Capabilities::SUBGROUP
        | Capabilities::SUBGROUP_BARRIER
        | Capabilities::SHADER_INT64
        | Capabilities::SHADER_FLOAT16
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::SHADER_FLOAT32_ATOMIC
}

/// Whether the type of a variable ends in an array without a length.
fn is_runtime_sized(module: &Module, variable: &GlobalVariable) -> bool {
    match &module.types[variable.ty].inner {
        TypeInner::Array { size: ::naga::ArraySize::Dynamic, .. } => true,
        TypeInner::Struct { members, .. } => members.last().is_some_and(|member| {
            matches!(module.types[member.ty].inner, TypeInner::Array { size: ::naga::ArraySize::Dynamic, .. })
        }),
        _ => false,
    }
}

/// The module with values in place of its `override` constants: those of definitions with a constant's name or `@id`, or their defaults.
/// `None` if it has none.
fn with_values(
    module: &Module,
    info: &ModuleInfo,
    defines: &[(String, Option<String>)],
) -> Result<Option<Module>, String> {
    let mut values = PipelineConstants::default();
    for (_, constant) in module.overrides.iter() {
        let id = constant.id.map(|id| id.to_string());
        let keys = [constant.name.clone(), id.clone()];
        let given = defines.iter().find(|(name, _)| keys.iter().flatten().any(|key| key == name));
        if let (Some((name, value)), Some(key)) = (given, id.or(constant.name.clone())) {
            let value = match value.as_deref().unwrap_or("1") {
                "true" => Ok(1.0),
                "false" => Ok(0.0),
                number => number.parse::<f64>(),
            };
            values.insert(key, value.map_err(|_| format!("the value of `{name}` is not a number"))?);
        }
    }
    match process_overrides(module, info, None, &values) {
        Ok((Cow::Owned(module), _)) => Ok(Some(module)),
        Ok((Cow::Borrowed(_), _)) => Ok(None),
        Err(PipelineConstantError::MissingValue(name)) => {
            Err(format!("the `override` constant `{name}` has no value: define it (`-D {name}=VALUE`)"))
        }
        Err(other) => Err(other.to_string()),
    }
}

/// Writes the compute entry points of a module. `source` is the name and text of the file that its places are in.
fn write(
    module: Module,
    info: &ModuleInfo,
    defines: &[(String, Option<String>)],
    source: Option<(&str, &str)>,
) -> Result<Translation, String> {
    let mut module = with_values(&module, info, defines)?.unwrap_or(module);
    names::make_way(&mut module);
    let mut bound: Vec<&GlobalVariable> = Vec::new();
    for (_, variable) in module.global_variables.iter() {
        match (variable.space, variable.binding) {
            (AddressSpace::Handle, _) => {
                let name = variable.name.as_deref().unwrap_or("");
                return Err(format!("`{name}` is a texture or sampler, which is not supported"));
            }
            (_, Some(_)) => bound.push(variable),
            _ => {}
        }
    }
    bound.sort_by_key(|variable| variable.binding);
    if bound.len() >= usize::from(MAX_BUFFERS) {
        return Err(format!("{} buffers; Metal has {MAX_BUFFERS}, of which one has the sizes", bound.len()));
    }
    let mut resources = msl::EntryPointResources::default();
    for (index, variable) in (0..).zip(&bound) {
        let Some(binding) = variable.binding else { continue };
        let target = msl::BindTarget { buffer: Some(index), mutable: true, ..msl::BindTarget::default() };
        resources.resources.insert(binding, target);
    }
    let bound_names: Vec<Option<String>> = bound.iter().map(|variable| variable.name.clone()).collect();
    let next = u8::try_from(bound.len()).unwrap_or(MAX_BUFFERS);
    let has_sizes = bound.iter().any(|variable| is_runtime_sized(&module, variable));
    resources.sizes_buffer = has_sizes.then_some(next);
    resources.immediates_buffer = Some(next + u8::from(has_sizes));
    module.entry_points.retain(|entry| entry.stage == ShaderStage::Compute);
    if module.entry_points.is_empty() {
        return Err("there is no compute entry point".into());
    }
    let policy = BoundsCheckPolicy::ReadZeroSkipWrite;
    let options = msl::Options {
        lang_version: (2, 4),
        per_entry_point_map: module
            .entry_points
            .iter()
            .map(|entry| (entry.name.clone(), resources.clone()))
            .collect(),
        fake_missing_bindings: false,
        bounds_check_policies: BoundsCheckPolicies {
            index: policy,
            buffer: policy,
            ..BoundsCheckPolicies::default()
        },
        zero_initialize_workgroup_memory: true,
        force_loop_bounding: false,
        ..msl::Options::default()
    };
    let functions = source.map(|(_, text)| lines::mark(&mut module, text));
    let mut validator = Validator::new(ValidationFlags::all(), capabilities());
    let info = validator.validate(&module).map_err(|error| error.as_inner().to_string())?;
    let written = msl::write_string(&module, &info, &options, &msl::PipelineOptions::default());
    let (mut text, names) = written.map_err(|error| error.to_string())?;
    let mut renamed = BTreeSet::new();
    let mut kernels = Vec::new();
    for (entry, name) in module.entry_points.iter().zip(names.entry_point_names) {
        let mut name = name.map_err(|error| format!("entry point `{}`: {error}", entry.name))?;
        if let Some(restored) = names::restored(&text, &name, &entry.name) {
            (text, name) = (restored, entry.name.clone());
        }
        if name != entry.name {
            renamed.insert((entry.name.clone(), name.clone()));
        }
        for (index, wanted) in bound_names.iter().enumerate() {
            let Some(wanted) = wanted else { continue };
            let buffer = format!("[[buffer({index})]]");
            let written = arguments(&text, &name).into_iter().find(|argument| argument.msl.contains(&buffer));
            match written.map(|argument| argument.source).filter(|written| written != wanted) {
                None => {}
                Some(written) => match names::restored(&text, &written, wanted) {
                    Some(restored) => text = restored,
                    None => _ = renamed.insert((wanted.clone(), written)),
                },
            }
        }
        kernels.push((name, entry.workgroup_size.map(u64::from)));
    }
    let kernels = kernels.into_iter().map(|(name, size)| {
        let arguments = arguments(&text, &name);
        Kernel { name, arguments, group_size: Some(size) }
    });
    let kernels: Vec<Kernel> = kernels.collect();
    let mut differences =
        BTreeSet::from(["accesses outside a buffer or array read zero and write nothing".to_owned()]);
    if has_sizes {
        differences.insert(format!(
            "`_buffer_sizes` at index {next}: sizes in bytes of the buffers that end in an array without a length, as `uint`s"
        ));
    }
    text = mend::initialization(&text);
    if has_sizes {
        text = mend::warnings(&text);
    }
    if let (Some((file, _)), Some(functions)) = (source, functions) {
        text = lines::replace(&text, file, &functions);
    }
    Ok(Translation {
        msl: text,
        kernels,
        refused: Vec::new(),
        errors: Vec::new(),
        functions: BTreeMap::new(),
        renamed,
        differences,
        templates: Vec::new(),
        host: None,
    })
}

/// The parameters of a kernel that naga has written, one a line.
fn arguments(text: &str, name: &str) -> Vec<Argument> {
    let Some((_, rest)) = text.split_once(&format!("kernel void {name}(")) else { return Vec::new() };
    let head = rest.split_once(") {").map_or(rest, |(head, _)| head);
    let lines = head.lines().map(|line| line.trim().trim_start_matches(',').trim());
    let bound = lines.filter(|line| line.contains("[[buffer(") || line.starts_with("threadgroup "));
    bound
        .map(|line| {
            let declared = line.split("[[").next().unwrap_or(line).trim();
            let source = declared.rsplit([' ', '&', '*']).next().unwrap_or("").to_owned();
            Argument { source, msl: line.to_owned() }
        })
        .collect()
}
