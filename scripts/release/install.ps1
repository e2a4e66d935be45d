# Installs wglm @VERSION@ for this user, from the archive of its release:
#
#   .\install.ps1                     to .local\bin in your profile's folder
#   .\install.ps1 -To DIR             to another folder
#   .\install.ps1 -Version VERSION    another version
#
# Nothing else is changed, and nothing is installed whose SHA-256 is not that of the release. WGLM_RELEASES names
# another address of releases, below which a version's files are in vVERSION/. Works with the PowerShell 5.1 of Windows.
param(
    [string] $To = (Join-Path $HOME '.local\bin'),
    [string] $Version = '@VERSION@'
)
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue' # the bar makes downloads many times slower in 5.1
[Net.ServicePointManager]::SecurityProtocol = [Net.ServicePointManager]::SecurityProtocol -bor 'Tls12'

$releases = '@RELEASES@'
if ($env:WGLM_RELEASES) { $releases = $env:WGLM_RELEASES }
$Version = $Version -replace '^v', ''
# Windows for ARM processors runs this one too.
$name = "wglm-$Version-x86_64-pc-windows-msvc"

$work = Join-Path ([IO.Path]::GetTempPath()) ([IO.Path]::GetRandomFileName())
New-Item -ItemType Directory $work | Out-Null
try {
    Write-Host "downloading $name.zip"
    $archive = Join-Path $work 'archive.zip'
    $sum = Join-Path $work 'sum'
    Invoke-WebRequest -UseBasicParsing "$releases/v$Version/$name.zip.sha256" -OutFile $sum
    Invoke-WebRequest -UseBasicParsing "$releases/v$Version/$name.zip" -OutFile $archive

    $wanted = ((Get-Content $sum -Raw).Trim() -split '\s+')[0]
    $found = (Get-FileHash -Algorithm SHA256 $archive).Hash
    if ($wanted -ne $found) { throw "the download is not what was released: its SHA-256 is $found, not $wanted" }

    Expand-Archive $archive $work
    New-Item -ItemType Directory -Force $To | Out-Null
    $program = Join-Path $To 'wglm.exe'
    Copy-Item -Force (Join-Path (Join-Path $work $name) 'wglm.exe') $program
    $installed = & $program --version
    if ($LASTEXITCODE -ne 0) { throw "$program is installed, but does not start here" }
    Write-Host "installed $installed as $program"
    if (($env:PATH -split ';') -notcontains $To) { Write-Host "$To is not in PATH: add it, or call $program" }
} finally {
    Remove-Item -Recurse -Force $work
}
