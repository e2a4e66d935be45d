# What `run` does, on Windows: builds wglm, and runs it. Nobody has run this script on Windows yet.
#   .\run.ps1                                   a conversation
#   .\run.ps1 "Tell me a story about an owl."   one prompt, with options of `wglm run` before or after it
#   .\run.ps1 devices                           any other command of wglm: a first argument that names one
#   .\run.ps1 help                              all of them
# WGLM names a program that is run instead of the one built here. If scripts are not allowed on this machine:
# powershell -ExecutionPolicy Bypass -File run.ps1
$ErrorActionPreference = 'Stop'
$arguments = @($args)
if ($arguments.Count -eq 0) { $arguments = @('chat') }

# `run` has the list of commands.
$line = Select-String -Path "$PSScriptRoot\run" -Pattern '^    (run \| .*)\) ;;$'
$commands = $line.Matches[0].Groups[1].Value -split ' \| '
$known = $commands + 'help', '--help', '-h', '--version', '-V'
if ($known -cnotcontains $arguments[0]) { $arguments = @('run') + $arguments }

$env:WGLM_COMMAND = '.\run.ps1' # which messages name
if ($env:WGLM) { & $env:WGLM @arguments; exit $LASTEXITCODE }
if (-not (Get-Command cargo -ErrorAction SilentlyContinue)) {
    Write-Host 'cargo was not found: install Rust from https://rustup.rs, then open a new window'
    exit 1
}
& cargo run --release --quiet --locked --manifest-path "$PSScriptRoot\Cargo.toml" -- @arguments
exit $LASTEXITCODE
