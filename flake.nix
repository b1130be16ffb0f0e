# Untested where skyhop is developed: no Nix there. The release workflow checks and builds it.
{
  description = "TCP made fast over satellite links: gateway pair, lab, study";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      manifest = (builtins.fromTOML (builtins.readFile ./Cargo.toml)).workspace.package;
      forEach = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
    in
    {
      packages = forEach (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = "skyhop";
          version = manifest.version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          cargoBuildFlags = [
            "--package"
            "skyhop"
          ];
          # They need namespaces, root and a lab: ./check runs them.
          doCheck = false;
          postInstall = ''
            sh packaging/stage $out/bin/skyhop stage
            cp -r stage/lib stage/share $out/
            substituteInPlace $out/lib/systemd/system/*.service --replace-fail /usr/bin/ $out/bin/
          '';
          meta = {
            description = "TCP made fast over satellite links: gateway pair, lab, study";
            license = with pkgs.lib.licenses; [
              asl20
              mit
            ];
            mainProgram = "skyhop";
            platforms = systems;
          };
        };
      });
    };
}
