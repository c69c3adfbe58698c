-- nearmetal: adds the GRES that a job's --vm-vf and --vm-region ask for, so that Slurm keeps
-- VFs and memory for it. What a job asks of its VMs stands in its SPANK environment
-- (NEARMETAL_REQUEST, slurm/request.h). A site with a job_submit.lua of its own copies what
-- is called nearmetal_* and calls nearmetal_add_gres from its slurm_job_submit.

-- The names of the GRES in slurm.conf.
local nearmetal_gres = { vf = "vf", region = "region" }

-- What a job asks for, as { vf = "mlx5:1", region = "536870912" }; nil if it asks for no VMs.
local function nearmetal_request(job_desc)
	for _, entry in pairs(job_desc.spank_job_env or {}) do
		local request = string.match(entry, "NEARMETAL_REQUEST=1 (.*)$")
		if request ~= nil and #request < 4096 then
			local values = {}
			-- A user can write anything there: only these two keys in this form are taken.
			for key, value in string.gmatch(request, "(%a+)=(%S+)") do
				if key == "vf" and string.match(value, "^[%w_.-]*:?%d+$") then
					values.vf = value
				elseif key == "region" and string.match(value, "^%d+$") and value ~= "0" then
					values.region = value
				end
			end
			return values
		end
	end
	return nil
end

-- How GRES are written: gres:NAME before Slurm 23.11, gres/NAME from then on, which has this error.
local nearmetal_prefix = slurm.ESLURM_PLUGIN_NOTFOUND and "gres/" or "gres:"

local function nearmetal_add_gres(job_desc)
	local values = nearmetal_request(job_desc)
	if values == nil then
		return
	end
	local tres = job_desc.tres_per_node or ""
	for key, value in pairs(values) do
		local name = nearmetal_gres[key]
		-- What the user himself asked for by --gres stays as it is.
		if not string.find("," .. tres .. ",", "[,:/]" .. name .. "[:,=]") then
			tres = tres .. (tres ~= "" and "," or "") .. nearmetal_prefix .. name .. ":" .. value
		end
	end
	if tres ~= "" then
		job_desc.tres_per_node = tres
	end
end

function slurm_job_submit(job_desc, part_list, submit_uid)
	nearmetal_add_gres(job_desc)
	return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
	return slurm.SUCCESS
end

return slurm.SUCCESS
