#!/usr/bin/env bash
# Writes dist/wglm.rb, a formula for a Homebrew tap (the file Formula/wglm.rb of a repository called homebrew-tap), from
# the checksums in dist/.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

address=$(repository)

# source_of TARGET: the two lines that name an archive.
source_of() {
    local file=wglm-$version-$1.tar.gz
    [[ -f $dist/$file.sha256 ]] || die "$dist/$file.sha256 is missing"
    printf '      url "%s/releases/download/v%s/%s"\n' "$address" "$version" "$file"
    printf '      sha256 "%s"\n' "$(cut -d ' ' -f 1 "$dist/$file.sha256")"
}

formula=$(
    cat <<END
class Wglm < Formula
  desc "Runs GLM-4.7-Flash from a GGUF file on the GPU"
  homepage "$address"
  version "$version"
  license all_of: [{ any_of: ["MIT", "Apache-2.0"] }, "MIT", "BSD-2-Clause"]

  on_macos do
    on_arm do
$(source_of aarch64-apple-darwin)
    end
    on_intel do
$(source_of x86_64-apple-darwin)
    end
  end

  on_linux do
    on_arm do
$(source_of aarch64-unknown-linux-gnu)
    end
    on_intel do
$(source_of x86_64-unknown-linux-gnu)
    end

    depends_on "vulkan-loader"
  end

  def install
    bin.install "wglm"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/wglm.bash" => "wglm"
    fish_completion.install "completions/wglm.fish"
    zsh_completion.install "completions/_wglm"
    doc.install Dir["LICENSE*"], "README.md", "CHANGELOG.md"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/wglm --version")
  end
end
END
)
# A missing checksum ends the function above, but not this script.
[[ $(grep -c '^      sha256 ' <<<"$formula") -eq 4 ]] || exit 1
printf '%s\n' "$formula" >"$dist/wglm.rb"
