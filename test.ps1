# What `test` does, on Windows: tests wglm. Nobody has run this script on Windows yet.
#   .\test.ps1                  every module, with a covering set of kernels and formats
#   .\test.ps1 --all            also the tests called `extended_...`, every kernel in every format, all features
#   .\test.ps1 --product        also those called `long_...`, and kernels in all formats, shapes and modes
#   .\test.ps1 kernel mul_mv    a kernel in every format
# Other arguments go to `cargo test`: .\test.ps1 --test it kernels:: '--' --nocapture
$ErrorActionPreference = 'Stop'
if (-not (Get-Command cargo -ErrorAction SilentlyContinue)) {
    Write-Host 'cargo was not found: install Rust from https://rustup.rs, then open a new window'
    exit 1
}
$test = @('test', '--manifest-path', "$PSScriptRoot\Cargo.toml")
$first = if ($args.Count) { $args[0] } else { '' }
$rest = @($args | Select-Object -Skip 1)
switch -CaseSensitive ($first) {
    '--all' { $env:WGLM_TESTS = 'all'; $test += @('--workspace', '--all-features') + $rest + @('--', '--skip=::long_') }
    '--product' { $env:WGLM_TESTS = 'product'; $test += @('--workspace', '--all-features') + $rest }
    'kernel' {
        if (-not $rest) { Write-Host 'which kernel? One of engine/wgsl/op: .\test.ps1 kernel mul_mv'; exit 2 }
        $env:KERNEL = $rest[0]
        $tests = 'kernels::every', 'kernels::parts', 'kernels::perturbed', 'kernels::parameters'
        $test += @('--test', 'it', '--') + $tests + '--nocapture'
    }
    '' { $test += '--', '--skip=::long_', '--skip=::extended_' }
    default { $test += @($args) }
}
& cargo @test
exit $LASTEXITCODE
