"""pyEMU's side of the PEST benchmarks: it runs in an environment of its own and prints what pyEMU reads.

_pyemu_side.py count FILE...           prints, for each control, template or instruction file, its counts or its error
_pyemu_side.py write FOLDER            writes cases of both styles with templates and instructions
_pyemu_side.py run CONTROL ENSEMBLE    prints the outputs of the members, one line each
_pyemu_side.py binary COV              writes the covariance file in all binary formats of pyEMU and prints their names
"""

import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pyemu

warnings.filterwarnings("ignore")


def run(control, ensemble):
    control = Path(control).resolve()
    pst = pyemu.Pst(str(control))
    found = pyemu.ParameterEnsemble.from_csv(pst=pst, filename=str(Path(ensemble).resolve()))
    assert list(found.columns) == list(pst.par_names), "the ensemble has the parameters of the case, in its order"
    names = pst.nnz_obs_names
    for label in found.index:
        with tempfile.TemporaryDirectory() as directory:
            folder = Path(directory) / "case"
            shutil.copytree(control.parent, folder)
            os.chdir(folder)
            own = pyemu.Pst(control.name)
            own.parameter_data.loc[found.columns, "parval1"] = found.loc[label, found.columns].astype(float).values
            own.write_input_files()
            environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
            for command in own.model_command:
                subprocess.run(command, shell=True, check=True, env=environment)
            parts = []
            for ins, out in zip(own.model_output_data.pest_file, own.model_output_data.model_file, strict=True):
                delimiters = own.pestpp_options.get("additional_ins_delimiters")
                if delimiters:
                    Path(out).write_text(Path(out).read_text().replace(delimiters, " "))
                frame = pyemu.pst_utils.InstructionFile(ins, pst=own).read_output_file(out)
                parts += [f"{name}={frame.loc[name, 'obsval']!r}" for name in frame.index if name in names]
            os.chdir("/")
            print(" ".join(part.replace("np.float64(", "").replace(")", "") for part in parts))


def binary(cov):
    found = pyemu.Cov.from_ascii(cov)
    for kind, write in (("pest", found.to_binary), ("coo", found.to_coo), ("dense", found.to_dense)):
        file = str(Path(cov).with_suffix(f".{kind}.jcb"))
        write(file)
        print(file)


def count(files):
    for file in files:
        path = Path(file)
        try:
            if path.suffix.lower() == ".pst":
                pst = pyemu.Pst(str(path))
                print(f"{file}\t{pst.npar} {pst.nobs} {pst.nprior} {len(pst.model_command)}")
            elif path.suffix.lower() == ".tpl":
                print(f"{file}\t{len(set(pyemu.pst_utils.parse_tpl_file(str(path))))}")
            else:
                print(f"{file}\t{len(set(pyemu.pst_utils.parse_ins_file(str(path))))}")
        except Exception as error:
            print(f"{file}\terror: {type(error).__name__}: {' '.join(str(error).split())[:120]}")


def write_pstfrom(folder):
    """A case of `PstFrom`, the interface that builds cases from the files of a model: pilot points, grid, constants."""
    original, case = Path(folder) / "original", Path(folder) / "pstfrom"
    original.mkdir(parents=True)
    (original / "k.dat").write_text("\n".join(" ".join(["5.0"] * 10) for _ in range(6)) + "\n")
    (original / "rch.dat").write_text("0.001\n")
    (original / "heads.csv").write_text("time,w1,w2\n1.0,20.1,20.2\n2.0,20.3,20.4\n")
    os.chdir(folder)
    variogram = pyemu.geostats.ExpVario(contribution=1.0, a=300)
    settings = {"geostruct": pyemu.geostats.GeoStruct(variograms=variogram), "upper_bound": 10, "lower_bound": 0.1}
    grid = pyemu.helpers.SpatialReference(delr=[100] * 10, delc=[100] * 6)
    made = pyemu.utils.PstFrom(original.name, case.name, remove_existing=True, longnames=True, spatial_reference=grid)
    points = {"pp_space": 3, "try_use_ppu": False}
    made.add_parameters(
        "k.dat", par_type="pilotpoints", par_name_base="hkpp", pargp="pp", pp_options=points, **settings
    )
    made.add_parameters("k.dat", par_type="grid", par_name_base="hkgr", pargp="gr", **settings)
    made.add_parameters(
        "rch.dat", par_type="constant", par_name_base="rch", pargp="rch", upper_bound=2, lower_bound=0.5
    )
    made.add_observations("heads.csv", insfile="heads.csv.ins", index_cols="time", use_cols=["w1", "w2"], prefix="hds")
    made.mod_sys_cmds.append("python model.py")
    made.build_pst("case.pst", version=2)
    shutil.rmtree(original)


def write(folder):
    write_pstfrom(folder)
    for size in (1, 7, 60):
        for version in (1, 2):
            case = Path(folder) / f"case_{size}_{version}"
            case.mkdir(parents=True)
            os.chdir(case)
            names = [f"k:{i}_inst:0" for i in range(size)]
            (case / "k.dat.tpl").write_text("ptf ~\n" + "".join(f"{i} ~{name:^30}~\n" for i, name in enumerate(names)))
            heads = [f"oname:h_{i}" for i in range(2 * size)]
            (case / "h.dat.ins").write_text("pif ~\nl1\n" + "".join(f"l1 ~,~ !{name}!\n" for name in heads))
            pst = pyemu.Pst.from_io_files("k.dat.tpl", "k.dat", "h.dat.ins", "h.dat", pst_path=".")
            pst.model_command = ["python model.py", "python post.py"] if version == 2 else ["python model.py"]
            pst.parameter_data.loc[names[0], "partrans"] = "none"
            if size > 3:
                pst.parameter_data.loc[names[2], "partrans"] = "fixed"
                pst.parameter_data.loc[names[3], "partrans"] = "tied"
                pst.parameter_data.loc[names[3], "partied"] = names[1]
            pyemu.helpers.zero_order_tikhonov(pst)
            pst.pestpp_options["ies_num_reals"] = 30
            pst.pestpp_options["forecasts"] = heads[:1]
            pst.write("case.pst", version=version)


if __name__ == "__main__":
    actions = {
        "run": lambda: run(*sys.argv[2:]),
        "binary": lambda: binary(sys.argv[2]),
        "count": lambda: count(sys.argv[2:]),
        "write": lambda: write(sys.argv[2]),
    }
    actions[sys.argv[1]]()
